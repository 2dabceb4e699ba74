"""The forms that a report is written in: text, Markdown, HTML, JSON."""
