"""Recordings: written, indexed, redacted, repaired and replayed."""
