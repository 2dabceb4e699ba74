"""A simulated machine that trains: the source, its scenarios, and what they are computed from."""
