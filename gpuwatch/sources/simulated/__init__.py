"""A small machine that trains: cards, loader queues, processes and a host, on a fixed step.

``world`` turns the crank; ``scenarios`` says what is wrong with it this time; ``simulated``
(one level up) is the source that shows it.
"""
