"""The parts of the simulated machine: cards, jobs, processes and a host."""
