"""How good the diagnosis is: labelled cases, what it says of them, and the figures.

``python -m tests.evaluation`` prints the table. See ``cases`` for what a case is and ``physics``
for the training jobs behind the generated ones.
"""
