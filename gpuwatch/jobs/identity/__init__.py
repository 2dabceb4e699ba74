"""What belongs to a job and what each process is in it."""
