"""Parts that several rules share; nothing here is a rule."""
