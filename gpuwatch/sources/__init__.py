"""Readers: from a machine, a simulation or a file to immutable snapshots."""
