"""Which loader settings are measured, in which order, and which is recommended. Pure."""
