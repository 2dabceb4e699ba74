"""Jobs whose GPU waits for something else than data: requests, environments."""
