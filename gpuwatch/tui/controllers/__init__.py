"""Reactions to snapshots and keys: jobs, findings, time, recordings and practice jobs."""
