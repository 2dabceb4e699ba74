"""The program of a practice job: its loop, data, device, ranks and side jobs."""
