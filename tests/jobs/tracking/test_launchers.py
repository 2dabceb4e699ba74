"""Jobs of several processes as frameworks start them by themselves: found from any of these."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuwatch.core.model import Job
from gpuwatch.jobs.identity.attach import resolve
from tests.jobs.tracking.watching import watching
from tests.support.children import wait_until
from tests.support.installed import needs

LIGHTNING = """
import os, time

os.write(1, f"{os.environ.get('LOCAL_RANK', 0)} {os.getpid()}\\n".encode())
if "LOCAL_RANK" in os.environ:
    # What Lightning started it with is there: it need not import it, too, which takes seconds.
    time.sleep(600)

import lightning, torch

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, index):
        raise NotImplementedError("it waits for the other before the first")
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_steps=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.zeros(8, 1)))
"""

SPAWN = """
import ctypes, multiprocessing, os, threading, time

def collective():
    # As Gloo names its threads: to import it in three processes takes seconds.
    ctypes.CDLL(None).prctl(15, b"pt_gloo_runloop")
    time.sleep(600)

def train(index):
    threading.Thread(target=collective, daemon=True).start()
    os.write(1, f"{index} {os.getpid()}\\n".encode())
    time.sleep(600)

if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    ranks = [spawn.Process(target=train, args=(index,)) for index in range(2)]
    for rank in ranks:
        rank.start()
    time.sleep(600)
"""

JOBLIB = """
import os, time
from joblib import Parallel, delayed

def work(index):
    os.write(1, f"{index} {os.getpid()}\\n".encode())
    time.sleep(600)

Parallel(n_jobs=2)(delayed(work)(index) for index in range(2))
"""


@contextmanager
def running(script: str, folder: Path, processes: int) -> Iterator[tuple[int, list[int]]]:
    """The script as ``train.py``: its PID, and those of its processes by the number they say."""
    (folder / "train.py").write_text(script)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "JOBLIB_TEMP_FOLDER": str(folder),
    }
    process = subprocess.Popen(
        [sys.executable, "train.py", "--fast"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=folder,
        start_new_session=True,
        text=True,
    )
    found: dict[int, int] = {}
    try:
        for line in process.stdout:
            words = line.split()
            if len(words) == 2 and all(map(str.isdigit, words)):
                found[int(words[0])] = int(words[1])
            if len(found) == processes:
                break
        assert len(found) == processes, "it ended"
        yield process.pid, [found[number] for number in range(processes)]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        # joblib's tracker, which was killed with it, can tidy up no more.
        for left in Path("/dev/shm").glob(f"sem.loky-{process.pid}-*"):
            left.unlink()


def job_of(pid: int, ranks: int) -> Job:
    """The job that somebody sees who asks for this process, once its ranks are known."""
    with watching(resolve(pid).pid) as watch:
        jobs: list[Job] = []

        def is_known() -> bool:
            jobs.append(watch.job(after=2.0))
            return len(jobs[-1].ranks) == ranks

        wait_until(is_known)
        return jobs[-1]


@needs("lightning")
def test_ranks_that_lightning_starts_are_one_job(tmp_path: Path) -> None:
    """The first starts the others, whose environment alone has numbers; each leads to all."""
    with running(LIGHTNING, tmp_path, 2) as (pid, ranks):
        for asked in ranks:
            job = job_of(asked, 2)
            assert job.pid == pid == ranks[0]
            assert [(rank.rank, rank.pid) for rank in job.ranks] == [*enumerate(ranks)]
            assert job.world_size == 2


def test_ranks_that_multiprocessing_spawns_have_the_number_they_were_given(tmp_path: Path) -> None:
    """They hear it through a pipe, in the order in which they are started."""
    with running(SPAWN, tmp_path, 2) as (pid, ranks):
        job = job_of(ranks[1], 2)
        assert job.pid == pid
        assert [(rank.rank, rank.pid) for rank in job.ranks] == [*enumerate(ranks)]


@needs("joblib")
def test_a_worker_of_joblib_leads_to_its_job(tmp_path: Path) -> None:
    """Which has the other workers, too, and what joblib starts beside them; none is a rank."""
    with running(JOBLIB, tmp_path, 2) as (pid, workers):
        for worker in workers:
            job = job_of(worker, 1)
            assert job.pid == job.ranks[0].pid == pid
            roles = {member.pid: member.role for member in job.members}
            assert [roles[worker] for worker in workers] == ["helper", "helper"]
            assert set(roles.values()) == {"rank", "helper"}
