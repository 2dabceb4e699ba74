"""Check whether a CPU quota, rather than the number of cores, is what a job runs into."""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import JobFacts

THROTTLED_PERCENT = 10.0
"""Of the quota's periods."""


def is_held_back(job: JobFacts) -> bool:
    throttled = job.cpu_throttled_percent or 0.0
    return job.job.quota_cores is not None and throttled >= THROTTLED_PERCENT
