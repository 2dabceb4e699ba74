"""The facts about jobs and GPUs that rules check."""
