"""The panels of the job screen."""
