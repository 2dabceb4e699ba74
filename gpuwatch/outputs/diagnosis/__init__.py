"""A diagnosis as text and JSON, and its schema."""
