"""Pages: for each a pure drawing, from a view and a size to a frame, and its screen."""
