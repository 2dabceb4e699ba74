"""The report of a job as plain text."""
