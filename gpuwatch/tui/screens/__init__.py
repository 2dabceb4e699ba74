"""The screens of the dashboard."""
