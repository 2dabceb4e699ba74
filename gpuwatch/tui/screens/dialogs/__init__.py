"""Windows over a screen: help, questions, notes."""
