"""Plain text for a terminal: tables, pages, colours."""
