"""A real PyTorch job on the virtual GPU, and what a person learns of it from outside: nothing in
between is replaced but the driver's library, and that one follows the job."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.commands.running import program
from tests.support.fake_nvml import FakeNvml, create_or_skip
from tests.support.installed import needs

pytestmark = needs("torch")

ROOT = Path(__file__).parents[2]

TRAIN = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset
from tests.support.virtual_gpu import VirtualGpu

workers, steps, cost = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

class Pictures(Dataset):
    def __len__(self):
        return 1 << 20
    def __getitem__(self, index):
        time.sleep(cost)
        return torch.zeros(16)

def train():
    torch.set_num_threads(1)
    gpu = VirtualGpu.open(0, memory_bytes=6 << 30)
    for step, batch in enumerate(DataLoader(Pictures(), batch_size=8, num_workers=workers)):
        if step == 0:
            print("training", flush=True)
        gpu.run(0.1)
        if step >= steps:
            break
    print("done", flush=True)

train()
"""


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    made = create_or_skip(tmp_path_factory.mktemp("nvml"), gpus=2)
    made.gpu[0].waveform("virtual")
    return made


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("project") / "train.py"
    path.write_text(TRAIN)
    return path


def test_a_job_is_found_by_one_of_its_workers(fake: FakeNvml, script: Path) -> None:
    """The page is the whole job's, with its workers counted."""
    environment = fake.env({"PYTHONPATH": str(ROOT)})
    train = [sys.executable, str(script), "4", "1000000", "0.005"]
    with subprocess.Popen(train, env=environment, stdout=subprocess.PIPE, text=True) as job:
        try:
            assert job.stdout.readline() == "training\n"
            worker = psutil.Process(job.pid).children()[0].pid
            page = program("status", "--pid", str(worker), env=environment, timeout=90).stdout
        finally:
            job.kill()
    assert "4 loader workers" in page
    assert str(job.pid) in page


def test_a_job_that_gpuwatch_runs_has_a_report(
    fake: FakeNvml, script: Path, tmp_path: Path
) -> None:
    """Its own output stays as it is; the report on standard error says how long it ran, how busy
    its GPU was and how it loaded its data, and is kept."""
    state = tmp_path / "state"
    environment = fake.env({"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(state)})
    # On a busy machine gpuwatch looks less often than asked: its workers live for 7 s. They sleep,
    # so as not to make it busier.
    command = ("run", "--plain", "-i", "0.5", "--", sys.executable, str(script), "2", "40", "0.04")
    done = program(*command, env=environment, cwd=script.parent, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "training\ndone\n"
    assert "2 loader workers" in done.stderr, done.stderr
    report = json.loads(program("report", "--json", env=environment).stdout)
    (gpu,) = report["gpus"]
    # Bursts of 0.1 s in the time that the driver was watched, which a busy machine makes longer.
    assert 0 < gpu["busy_percent"] < 60
    assert gpu["idle_seconds"] > 0.5
    assert report["jobs"][0]["exit_code"] == 0
