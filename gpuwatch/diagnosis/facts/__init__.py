"""From snapshots to windows: the facts about jobs and GPUs that rules check."""
