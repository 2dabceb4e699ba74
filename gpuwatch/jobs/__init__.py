"""From processes to jobs."""
