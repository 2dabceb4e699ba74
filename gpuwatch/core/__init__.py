"""What every layer shares: the model, its JSON, the store of readings, the sampler, text and units."""
