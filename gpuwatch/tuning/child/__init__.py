"""What runs in measuring processes, where PyTorch and the user's code are."""
