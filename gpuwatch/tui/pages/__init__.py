"""Each screen as a pure drawing: from a view and a size to a frame."""
