"""Practice jobs: real PyTorch training with a knob for each cause that the diagnosis knows.

``python -m gpuwatch.practice.train CAUSE`` runs one. ``causes`` and ``knobs`` need only the
standard library; PyTorch is imported by what runs in the job.
"""
