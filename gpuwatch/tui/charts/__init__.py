"""History on time columns: glyphs, strips, and the stretch of time that they show."""
