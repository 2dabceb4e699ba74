"""The terminal: cells, colours, pictures, slow and stalled connections."""
