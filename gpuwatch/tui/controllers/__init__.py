"""Reactions to snapshots and keys: jobs, findings, time and recordings."""
