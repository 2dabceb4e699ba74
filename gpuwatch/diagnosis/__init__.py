"""Diagnosis: why a GPU is under-used."""
