"""Rules about the training loop: Python, synchronisation, pauses and the size of steps."""
