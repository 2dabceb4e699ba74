"""Parts of a time in which a GPU did much the same, and what was lost in each."""
