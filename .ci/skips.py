"""Prints the tests that a pytest report says were skipped, and why.

Exit code 1 when one was skipped for a reason that CI does not expect: a test that CI should run.
"""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree

# Reason (a regular expression), and why CI cannot do better.
EXPECTED = {
    r"namespaces|as another user|kernel thread|cgroups with a CPU": "a container may not allow it",
    r"tmpfs|file system cannot be mounted": "a container may not allow it",
    r"mounts of one's own|no cgroup may be made": "a container may not allow it",
    r"only root can": "CI need not be root",
    r"no CUDA device": "needs a GPU",
    r"this machine has CUDA|there is a GPU": "a test of a machine without a GPU",
    r"no headless browser": "not every distribution has one in its archive",
    r"systemd-analyze is not installed": "nor has it systemd",
    r"(prometheus|prometheus-alertmanager|promtool) is not installed": "nor has it Prometheus",
    r"victoria-metrics is not installed": "nor has it VictoriaMetrics",
    r"(sshd|ssh-keygen|ssh) is not installed": "nor has it an SSH server",
    r"(munged|slurmctld|slurmd|sbatch) is not installed": "nor has it Slurm",
    r"shellcheck is not installed": "nor has it shellcheck",
    r"NVIDIA's library": "a test of a machine without a driver, on one with it",
    r"sixteen colours show labels as text": "says nothing in that theme",
}


def main(path: str) -> int:
    unexpected = 0
    skipped = 0
    for case in ElementTree.parse(path).iter("testcase"):
        for skip in case.iter("skipped"):
            skipped += 1
            reason = skip.get("message") or ""
            known = next((why for text, why in EXPECTED.items() if re.search(text, reason)), None)
            unexpected += known is None
            mark = "expected" if known is not None else "NOT EXPECTED"
            print(f"{mark}: {case.get('classname')}::{case.get('name')}: {reason}")
    print(f"{skipped} skipped, {unexpected} of them not expected")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
