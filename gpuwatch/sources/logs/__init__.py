"""Logs that ``nvidia-smi`` wrote, as snapshots."""
