"""Snapshots as JSON lines, in full or as what changed, and rounded for recordings."""
