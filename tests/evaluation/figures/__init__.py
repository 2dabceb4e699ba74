"""What came of the cases: scores, tables, and a look into one case."""
