"""What the application does about jobs, findings, time, recordings and practice jobs."""
