"""Rules about ranks that wait for each other."""
