"""Rules about GPU and host memory."""
