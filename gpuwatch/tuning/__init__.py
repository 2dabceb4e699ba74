"""Measures a job's loader and step with other settings, in processes of their own."""
