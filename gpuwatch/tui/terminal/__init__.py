"""What reaches the terminal: cells, colours, pictures, slow and stalled connections."""
