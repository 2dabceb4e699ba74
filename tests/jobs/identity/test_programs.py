"""What a command line says of its process."""

import shlex

import pytest

from gpuwatch.jobs.identity.programs import Program, recognise


def of(line: str, name: str = "python") -> Program:
    return recognise(tuple(shlex.split(line)), name)


@pytest.mark.parametrize(
    ("line", "launcher"),
    [
        ("/venv/bin/python /venv/bin/torchrun --nproc-per-node 8 train.py", "torchrun"),
        ("python -m torch.distributed.run train.py", "torchrun"),
        ("python3.12 -um torch.distributed.launch train.py", "torch.distributed.launch"),
        ("/venv/bin/python /venv/bin/accelerate launch train.py", "accelerate"),
        ("python -m accelerate.commands.launch train.py", "accelerate"),
        ("/usr/bin/python -u -m deepspeed.launcher.launch --world_info x train.py", "deepspeed"),
        ("/opt/openmpi/bin/mpirun -np 4 python train.py", "mpirun"),
        ("mpiexec.hydra -n 4 python train.py", "mpiexec.hydra"),
        ("srun --gpus 8 python train.py", "srun"),
        ("/venv/bin/python /venv/bin/horovodrun -np 4 python train.py", "horovodrun"),
    ],
)
def test_launchers_are_known_however_they_are_started(line: str, launcher: str) -> None:
    """As a script, as a module, with interpreter options, or as a program."""
    program = of(line)
    assert (program.kind, program.name) == ("launcher", launcher)


@pytest.mark.parametrize(
    "line",
    [
        "python -m accelerate env",
        "/venv/bin/python /venv/bin/accelerate config",
        "python train.py torchrun",
        "python -c 'import torchrun'",
        "python my_mpirun.py",
    ],
)
def test_other_commands_of_the_same_words_are_no_launchers(line: str) -> None:
    """``accelerate config`` launches nothing; a word elsewhere in the line means nothing."""
    assert of(line).kind == "python"


@pytest.mark.parametrize(
    ("line", "name", "kind"),
    [
        ("timeout 1h python train.py", "timeout", "wrapper"),
        ("uv run train.py", "uv", "wrapper"),
        ("uv pip install torch", "uv", "other"),
        ("/bin/bash train.sh", "bash", "shell"),
        ("-zsh", "zsh", "shell"),
        ("sshd: ada@pts/0", "sshd", "boundary"),
        ("tmux new -s train", "tmux: server", "boundary"),
        ("/usr/bin/containerd-shim-runc-v2 -id 1", "containerd-shim", "boundary"),
        ("/venv/bin/python /venv/bin/jupyter-lab", "jupyter-lab", "boundary"),
        ("/venv/bin/python /venv/bin/celery -A app worker", "celery", "boundary"),
        ("/venv/bin/python /venv/bin/gpuwatch run -- python train.py", "gpuwatch", "gpuwatch"),
        ("python -m gpuwatch", "python", "gpuwatch"),
        ("python screening.py", "python", "python"),
        ("./train --gpus 8", "train", "other"),
    ],
)
def test_what_ends_a_climb_or_is_passed_over(line: str, name: str, kind: str) -> None:
    """Wrappers, shells and what runs unrelated things are told apart."""
    assert of(line, name).kind == kind


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
