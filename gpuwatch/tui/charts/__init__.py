"""History on time columns: strips, plots, the time axis and its marks."""
