"""The cores and NUMA nodes that a job may use."""
