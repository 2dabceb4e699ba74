"""The program of measuring processes, where PyTorch and the user's code are."""
