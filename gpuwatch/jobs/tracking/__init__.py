"""Jobs followed from one snapshot to the next."""
