"""Panels as pure drawings: from a view and a size to lines."""
