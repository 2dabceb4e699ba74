"""What a redacted recording does not hold."""

from __future__ import annotations

import pytest

from gpuwatch.codec import snapshot_line
from gpuwatch.model import Host, Job, JobMember, JobRank, Problem, Process
from gpuwatch.outputs.redaction import Redactor, program_name
from tests.support.snapshots import gpu, snapshot

SECRETS = ("tok-123", "ada", "box3", "secretdir", "mlenv", "pod-7", "cafe01", "RANK")


def test_secrets_and_names_are_gone() -> None:
    """Wherever they stood; what is measured stays."""
    taken = snapshot(
        host=Host(name="box3", cpu_percent=5.0),
        gpus=(gpu(busy_percent=3.0),),
        processes=(
            Process(
                pid=7,
                user="ada",
                name="python",
                command="/home/ada/secretdir/python train.py --token tok-123",
                container="cafe01",
                cpu_percent=9.0,
            ),
            Process(pid=8, user="1004", command="python x"),
        ),
        jobs=(
            Job(
                pid=7,
                user="ada",
                command="python train.py --token tok-123",
                working_directory="/home/ada/secretdir",
                environment="conda mlenv",
                container="cafe01",
                pod="pod-7",
                members=(
                    JobMember(
                        pid=7,
                        command="python --token tok-123",
                        role_sign="RANK=0 in its environment",
                    ),
                    JobMember(pid=9, role_sign="named pt_data_worker"),
                ),
                ranks=(JobRank(pid=7, loader_workers_sign="see /home/ada/secretdir/x.py"),),
            ),
        ),
        problems=(
            Problem(source="processes", message="The files of ada on box3 in ~/secretdir: no."),
        ),
    )
    found = Redactor()(taken)
    text = snapshot_line(found)
    assert [secret for secret in SECRETS if secret in text] == []
    assert found.processes[0].command == "python"
    assert found.processes[0].cpu_percent == 9.0
    assert found.processes[1].user == "1004"
    assert found.jobs[0].members[1].role_sign == "named pt_data_worker"
    assert found.gpus == taken.gpus
    assert found.host.cpu_percent == 5.0


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/python3.11 -m train --key x", "python3.11"),
        ("python", "python"),
        ("ray::IDLE worker", "ray"),
        ("TOKEN=abc python x", "TOKEN"),
        ("sshd: ada@pts/0", "sshd"),
        ("", None),
        ("   ", None),
        (None, None),
        ("=x", "…"),
    ],
)
def test_only_the_program_of_a_command_line_is_kept(command: str | None, name: str | None) -> None:
    """Without its folder."""
    assert program_name(command) == name
