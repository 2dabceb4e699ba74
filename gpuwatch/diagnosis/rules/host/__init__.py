"""Rules about the cores a job may use."""
