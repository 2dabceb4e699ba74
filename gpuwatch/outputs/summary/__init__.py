"""From the snapshots of a recording to the numbers of its report, in one pass."""
