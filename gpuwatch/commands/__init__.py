"""Commands with a file of their own; ``cli`` adds them. Heavy imports wait until one runs."""
