"""Telemetry that a job reports of its own training loop: the file it is in, and its reader."""
