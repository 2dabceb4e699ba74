"""What every layer shares: the model, its JSON, history, the sampler, text and units."""
