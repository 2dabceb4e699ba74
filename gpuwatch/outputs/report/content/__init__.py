"""The content of a report for every form: its order and its words."""
