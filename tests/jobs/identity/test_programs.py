"""What a command line says of its process."""

import shlex

import pytest

from gpuwatch.jobs.identity.programs import Program, recognise


def of(line: str, name: str = "python") -> Program:
    return recognise(tuple(shlex.split(line)), name)


LINES = """
launcher torchrun: /venv/bin/python /venv/bin/torchrun --nproc-per-node 8 train.py
launcher torchrun: python -m torch.distributed.run train.py
launcher torch.distributed.launch: python3.12 -um torch.distributed.launch train.py
launcher accelerate: /venv/bin/python /venv/bin/accelerate launch train.py
launcher accelerate: python -m accelerate.commands.launch train.py
launcher deepspeed: /usr/bin/python -u -m deepspeed.launcher.launch --world_info x train.py
launcher mpirun: /opt/openmpi/bin/mpirun -np 4 python train.py
launcher mpiexec.hydra: mpiexec.hydra -n 4 python train.py
launcher srun: srun --gpus 8 python train.py
launcher horovodrun: /venv/bin/python /venv/bin/horovodrun -np 4 python train.py
python accelerate: python -m accelerate env
python accelerate: /venv/bin/python /venv/bin/accelerate config
python train.py: python train.py torchrun
python -c import torchrun: python -c 'import torchrun'
python my_mpirun.py: python my_mpirun.py
wrapper timeout: timeout 1h python train.py
wrapper uv: uv run train.py
other uv: uv pip install torch
shell bash: /bin/bash train.sh
shell zsh: -zsh
boundary sshd: sshd: ada@pts/0 | sshd
boundary tmux: tmux new -s train | tmux: server
boundary containerd-shim-runc-v2: /usr/bin/containerd-shim-runc-v2 -id 1 | containerd-shim
boundary jupyter-lab: /venv/bin/python /venv/bin/jupyter-lab | jupyter-lab
boundary celery: /venv/bin/python /venv/bin/celery -A app worker | celery
gpuwatch gpuwatch: /venv/bin/python /venv/bin/gpuwatch run -- python train.py | gpuwatch
python ray::Trainer.step: ray::Trainer.step | ray::Trainer.st
python ray::IDLE: ray::IDLE | ray::IDLE
boundary raylet: /v/ray/core/src/ray/raylet/raylet --node_ip_address=10.0.0.7 | raylet
gpuwatch gpuwatch: python -m gpuwatch
python screening.py: python screening.py
other train: ./train --gpus 8 | train
"""
"""Kind and name; the command line; the kernel's name where it is another than python."""


@pytest.mark.parametrize("text", LINES.strip().splitlines())
def test_programs_are_known_by_their_command_line(text: str) -> None:
    """Launchers however they are started: as a script, as a module, with interpreter options.
    ``accelerate config`` launches nothing; a word elsewhere in the line means nothing. Wrappers,
    shells and what runs unrelated things are told apart."""
    expected, _, line = text.partition(": ")
    command, _, name = line.partition(" | ")
    program = of(command, name or "python")
    assert f"{program.kind} {program.name}" == expected


@pytest.mark.parametrize(
    ("code", "started_by"),
    [
        ("from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=6)", "spawn"),
        ("from multiprocessing.forkserver import main; main(3, 4)", "forkserver"),
        ("from multiprocessing.resource_tracker import main;main(5)", "resource tracker"),
    ],
)
def test_the_start_methods_of_multiprocessing_are_known(code: str, started_by: str) -> None:
    """By the code that Python's multiprocessing hands to its children."""
    assert of(f"python -c {shlex.quote(code)} --multiprocessing-fork").started_by == started_by


def test_a_process_is_known_by_its_name_or_its_executable() -> None:
    """Where its arguments say nothing: ``VLLM::EngineCore`` is Python, as /proc/PID/exe says."""
    title = ("VLLM::EngineCore",)
    assert recognise(title, "VLLM::EngineCor", "/usr/bin/python3.12").kind == "python"
    assert recognise(title, "VLLM::EngineCor", None).kind == "other"
    # From PyTorch 2.5 on torchrun's main thread has this name, however it was started.
    assert recognise(("python", "start.py"), "pt_elastic").kind == "launcher"
    # A process that is ending has neither arguments nor a name.
    assert recognise((), "", None).kind == "other"
    line = "/usr/bin/python /site-packages/torch/_inductor/compile_worker/__main__.py --workers=8"
    assert of(line).helper == "a compile worker of torch.compile"
    assert of("/usr/libexec/gcc/x86_64-linux-gnu/13/cc1plus -quiet").helper == "a compiler"
    assert of("/site-packages/triton/backends/nvidia/bin/ptxas-blackwell -v").helper == "a compiler"
