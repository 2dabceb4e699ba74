"""How good the diagnosis is: labelled cases, what it says of them, and the figures.

    python -m tests.evaluation                   # the table, on parameters for choosing thresholds
    python -m tests.evaluation --held-out        # the same on parameters nothing was chosen by
    python -m tests.evaluation --kind straggler --cases 20 -v
    python -m tests.evaluation --case tuning/straggler/0/3        # and what every rule says of it
    python -m tests.evaluation.calibrate         # constants for the confidences

A case (``case``) is snapshots and, for each job in them, the right answers. Most are generated
(``cases``, one function a knob in ``jobs/knobs_*``) from a training job of its own physics
(``jobs/physics``), seen through a source that reads more or less of it (``jobs/machine``); some are
recordings of real PyTorch jobs on the virtual GPU, young and old (``recordings/``, labelled in
``index.json``, with how crowded the machine was; ``record`` makes another one of a practice job or
of one of ``real_jobs``). Kernels take time in them and compute nothing; all else is real. The label
is the knob that was turned, where turning it back makes the job faster; where it does not, the job
is healthy. Whoever mends a rule looks at tuning cases only, also at those of other seeds than 0;
the held-out ones are for the final word.
"""
