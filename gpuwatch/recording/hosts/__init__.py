"""Other machines over ssh, and the jobs that run on several of them."""
