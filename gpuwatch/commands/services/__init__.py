"""Commands that run for days: they watch without a screen, and others are given what they find."""
