"""Pure drawing: from a view and a size to lines."""
