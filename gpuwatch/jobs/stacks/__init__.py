"""Python stacks of training processes, sampled with py-spy and summed up."""
