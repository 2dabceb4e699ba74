"""Generated training jobs: their physics, the machine they run on, the knobs that are turned."""
