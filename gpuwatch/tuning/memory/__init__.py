"""How GPU memory grows with the batch size, and the largest batch that fits."""
