"""Processes that belong to one job, and the role of each."""
