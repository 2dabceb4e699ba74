"""The report of a recording as text, Markdown and JSON, and its schema."""
