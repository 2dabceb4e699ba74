"""How good the diagnosis is: labelled cases, what it says of them, and the figures.

    python -m tests.evaluation --half dev              # the table, on cases to mend rules by
    python -m tests.evaluation --half held-out         # the same on cases nothing was mended by
    python -m tests.evaluation --half dev --case slow_python -v   # and what every rule says
    python -m tests.evaluation --recorded              # real jobs
    python -m tests.evaluation.calibrate               # constants for the confidences

A case (``case``) is snapshots and, for each job in them, the right answers. Most are simulated
machines (``simulator``); some are recordings of real PyTorch jobs on the virtual GPU, young and old
(``recordings/``, labelled in ``index.json``, with how crowded the machine was; ``record`` makes
another one of one of ``real_jobs``, the others are of practice jobs that had more faults). Kernels
take time in them and compute nothing; all else is real. Whoever mends a rule looks at cases of the
``dev`` half only; the held-out ones are for the final word.
"""
