"""Starts measuring processes and survives whatever happens in them."""
