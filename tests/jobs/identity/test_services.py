"""Servers that wait for requests, and environments, known by what they have open and loaded."""

from pathlib import Path

import pytest

from gpuwatch.jobs.identity.process_facts import ProcessFacts
from gpuwatch.jobs.identity.surroundings import Listeners, service_sign, simulator

TRAIN = ("python", "train.py")
VLLM = ("/usr/bin/python3", "/usr/local/bin/vllm", "serve", "a/model")
MODULE = ("python", "-m", "vllm.entrypoints.openai.api_server")
LISTENING = "it listens on TCP port 8000"


@pytest.mark.parametrize(
    ("arguments", "port", "state", "only_known", "sign"),
    [
        (TRAIN, 8000, "0A", False, LISTENING),
        (VLLM, 8000, "0A", True, LISTENING.replace("it", "it is vllm and")),
        (MODULE, 8000, "0A", False, LISTENING.replace("it", "it is vllm and")),
        (TRAIN, 29500, "0A", True, None),
        (TRAIN, 40001, "0A", False, None),
        (VLLM, 8000, "01", False, None),
    ],
)
def test_a_server_listens_on_a_port_that_somebody_chose(
    tmp_path: Path,
    arguments: tuple[str, ...],
    port: int,
    state: str,
    only_known: bool,
    sign: str | None,
) -> None:
    """Where collectives are at work only a program known as one; a connection is none."""
    row = f" 0: 0100007F:{port:04X} 00000000:0000 {state} 0:0 0:0 0 1000 0 4711 1 0\n"
    (tmp_path / "7" / "net").mkdir(parents=True)
    (tmp_path / "7" / "net" / "tcp").write_text("  sl  local_address rem_address st\n")
    (tmp_path / "7" / "net" / "tcp6").write_text(f"  sl  local_address rem_address st\n{row}")
    (tmp_path / "7" / "fd").mkdir()
    (tmp_path / "7" / "fd" / "3").symlink_to("socket:[4711]")
    process = ProcessFacts(pid=7, parent=1, arguments=arguments)
    listeners = Listeners(tmp_path)
    assert service_sign([process], listeners, 0.0, only_known=only_known) == sign
    # As of IPv4, where there is no IPv6.
    (tmp_path / "7" / "net" / "tcp6").rename(tmp_path / "7" / "net" / "tcp")
    assert service_sign([process], Listeners(tmp_path), 0.0, only_known=only_known) == sign
    assert service_sign([ProcessFacts(pid=8, parent=1)], listeners, 0.0, only_known=False) is None


@pytest.mark.parametrize(
    ("maps", "command", "sign"),
    [
        ("7f00-7f01 r-xp 0 0:0 1 /site-packages/mujoco/libmujoco.so.3.1\n", "", "MuJoCo is loaded"),
        ("", "ppo.py --env-id CartPole-v1 --seed 1", "its command names the environment CartPole"),
        ("", "dqn.py env=ALE/Pong-v5", "its command names the environment Pong-v5"),
        ("", "train.py --model resnet-v2 --env prod --data set-v1", None),
    ],
)
def test_environments_are_known_by_their_libraries_or_ids(
    maps: str, command: str, sign: str | None, tmp_path: Path
) -> None:
    """In the process's map of its memory, and as an option of its command."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "maps").write_text(maps)
    found = simulator(
        ProcessFacts(pid=7, parent=1, arguments=("python", *command.split())), tmp_path
    )
    assert (found or "").startswith(sign or "")
    assert (found is None) is (sign is None)
    assert simulator(ProcessFacts(pid=8, parent=1), tmp_path) is None
