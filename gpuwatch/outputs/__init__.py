"""Text, JSON lines and CSV for scripts."""
