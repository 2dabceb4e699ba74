"""From snapshots to a report: one pass, in memory that does not grow with the time."""
