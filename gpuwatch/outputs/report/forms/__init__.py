"""The forms that a report is written in: text and HTML."""
