"""Shared by every layer: the model, its JSON, the store of readings, the sampler, text, units."""
