"""Rules about the health, speed and sharing of a GPU."""
