"""What a job did while it was watched: recorded, added up, stored."""
