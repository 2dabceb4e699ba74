"""Jobs, put together from processes."""
