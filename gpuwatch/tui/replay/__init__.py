"""The dashboard over a recording: a player, its clock and its keys."""
