"""Practice jobs that run: every knob has its effect. One job goes through many of them, since
importing PyTorch takes seconds."""

import importlib.util
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gpuwatch.practice.job.machine import scratch_folder
from gpuwatch.sources.linux.connections import ConnectionWatch, Traffic
from tests.practice.jobs import QUICK, ROOT, PracticeJob, is_gone, practice_job
from tests.support.children import ran, wait_until
from tests.support.warm_torch import WarmTorch

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


@needs_torch
class TestKnobs:
    """They are turned one after the other, while it trains."""

    @pytest.fixture(scope="class")
    @staticmethod
    def job(warm_torch: WarmTorch) -> Iterator[PracticeJob]:
        # On a disk: reads from memory are not reads.
        folder = scratch_folder()
        options = (*QUICK, "--spin-ms", "2", "--workers", "1", "--no-report")
        with practice_job(warm_torch, folder, *options) as job:
            job.until_it_says("training")
            yield job
            job.process.terminate()
            job.rest()
            # What it wrote is tidied up, however it ends.
            assert [path.name for path in folder.iterdir() if path.name.startswith("s")] == []
        shutil.rmtree(folder)

    def test_workers(self, job: PracticeJob) -> None:
        """Loader workers come and go, and without them the main process loads."""
        assert len(job.workers()) == 1
        assert len(job.load(workers=3)) == 3
        assert not job.load(workers=0)
        assert job.step() > 0

    def test_transforms_cost_the_workers(self, job: PracticeJob) -> None:
        """What a sample costs is paid by the worker, not by the main process."""
        (worker,) = job.load(workers=1, transform_ms=20)
        main = psutil.Process(job.process.pid)
        before, begun = used(main), used(worker)
        wait_until(lambda: used(worker) > begun + 0.5)
        assert used(main) - before < 0.25

    def test_cold_reads_are_real(self, job: PracticeJob) -> None:
        """Each sample comes from the disk, again and again, though the file fits in memory."""
        (worker,) = job.load(workers=1, read="cold", read_kib=1024)
        size = (job.folder / "samples.bin").stat().st_size
        assert size == 256 << 20

        def read() -> int:
            return int(worker.io_counters().read_bytes)

        first = read()
        wait_until(lambda: read() > first + (16 << 20))

    def test_samples_and_log_lines_over_the_network(self, job: PracticeJob) -> None:
        """From outside it shows who waits for the server, which is no process of the job: the
        workers that load, or the main process that logs or sends a checkpoint."""
        (worker,), main = job.load(workers=1, read="network", answer_ms=50), job.process.pid
        watch = ConnectionWatch()

        def traffic(pid: int) -> Traffic:
            return watch._look(time.monotonic(), {main: None, worker.pid: main})[pid]

        wait_until(lambda: traffic(worker.pid).awaits_network)
        wait_until(lambda: (traffic(worker.pid).network_receive_bytes_per_second or 0.0) > 4096)
        assert traffic(main).awaits_network is False
        (worker,) = job.load(workers=1, log=True, answer_ms=50)
        wait_until(lambda: traffic(main).awaits_network)
        assert traffic(worker.pid).awaits_network is False
        job.turn(save_every=0.1, save_mib=20, save_to="network")
        wait_until(lambda: (traffic(main).network_send_bytes_per_second or 0.0) > 1 << 20)
        job.until_it_says("saved 20 MiB")

    def test_slow_samples(self, job: PracticeJob) -> None:
        """One in so many costs a worker more than all the others."""
        (worker,) = job.load(workers=1, slow_every=40, slow_ms=500)
        begun = used(worker)
        wait_until(lambda: used(worker) > begun + 0.5)

    def test_checkpoints(self, job: PracticeJob) -> None:
        """A checkpoint of the size that was asked for is there, whole, and can be loaded. Saved in
        a thread they are there as well, and the training does not stop to say so."""
        torch = pytest.importorskip("torch")
        job.turn(save_every=0.1, save_mib=20)
        job.until_it_says("saved 20 MiB")
        job.turn(workers=0)
        path = job.folder / "checkpoint.pt"
        assert path.stat().st_size > 20 << 20
        assert "model" in torch.load(path)
        assert not path.with_suffix(".new").exists()
        path.unlink()
        job.turn(save_every=0.1, save_mib=5, save_aside=True)
        wait_until(path.exists)
        begun = job.step()
        assert job.step() > begun

    def test_validation(self, job: PracticeJob) -> None:
        """Validations come in between."""
        job.turn(validate_every=0.1, validate_for=0.1)
        job.until_it_says("validated for 0.1 s")

    def test_host_memory_grows(self, job: PracticeJob) -> None:
        """Workers keep what they are to keep, and end with it."""
        (worker,) = job.load(workers=1, host_leak_kib=512)
        first = worker.memory_info().rss
        wait_until(lambda: worker.memory_info().rss > first + (64 << 20))
        job.load(workers=0)
        assert is_gone(worker)

    def test_idle(self, job: PracticeJob) -> None:
        """It does nothing until it is asked to go on."""
        job.turn(workers=0, idle_after=0.1)
        job.until_it_says("doing nothing")
        job.turn(workers=0, idle_after=0)
        assert job.step() > 0

    def test_python_and_pieces(self, job: PracticeJob) -> None:
        """Python that launches small pieces keeps the main process at work."""
        job.turn(workers=0, python_ms=50, pieces=5)
        main = psutil.Process(job.process.pid)
        before = used(main)
        first = job.step()
        steps = job.step() - first
        assert used(main) - before > 0.045 * steps

    def test_all_else_trains(self, job: PracticeJob) -> None:
        """Knobs that show on a GPU only are no trouble on the CPU."""
        job.turn(
            workers=1, prefetch=4, sample_kib=64, model="gru", width=32, sync=True, spin_ms=1.0,
            gpu_leak_mib=1.0, gpu_held_percent=50.0, step_ms=20,
        )  # fmt: skip
        begun = job.step()
        assert job.step() > begun

    def test_nonsense_is_reported(self, job: PracticeJob) -> None:
        """A line of the control file that makes no sense is named, and it trains on."""
        (job.folder / "knobs").write_text("workers=lots\n")
        assert "workers is a whole number" in job.until_it_says("knobs was not applied")
        assert job.step() > 0


def used(process: psutil.Process) -> float:
    """CPU seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


def stands_still(process: psutil.Process) -> bool:
    before = used(process)
    time.sleep(0.2)
    return used(process) == before


@needs_torch
class TestRanks:
    def test_they_wait_for_each_other(self, tmp_path: Path, warm_torch: WarmTorch) -> None:
        """Two ranks meet in every step: while one is stopped the other makes none. The job's own
        launcher ends them all."""
        with practice_job(warm_torch, tmp_path, *QUICK, "--ranks", "2", "--workers", "0") as job:
            job.until_it_says("2 ranks by gloo")
            job.until_it_says("training")
            with_rank = [one for one in job.children() if "RANK" in one.environ()]
            ranks = sorted(with_rank, key=lambda one: one.environ()["RANK"])
            assert len(ranks) == 2
            assert job.step() > 0
            ranks[1].suspend()
            # It computes without a rest, unless it waits.
            wait_until(lambda: stands_still(ranks[0]))
            ranks[1].resume()
            wait_until(lambda: not stands_still(ranks[0]))
            assert job.step() > 0
            job.process.terminate()
            job.rest()
            wait_until(lambda: all(is_gone(rank) for rank in ranks))


@needs_torch
class TestOthers:
    def test_a_tenant_and_orphans(self, tmp_path: Path, warm_torch: WarmTorch) -> None:
        """A second job is killed and its workers stay, until the job that made it so is gone,
        however that ended; a third runs beside it until its knob is back."""
        # The CPU is the others': it rests in its steps.
        resting = (*QUICK, "--spin-ms", "50", "--workers", "0")
        with practice_job(warm_torch, tmp_path, *resting, "--orphans") as job:
            job.until_it_says("training")

            def apart(folder: str) -> list[psutil.Process]:
                """Processes that are not below the job."""
                # All of the machine are looked at: not as often as can be.
                time.sleep(0.2)
                mine = str(tmp_path / folder)
                return [
                    found
                    for found in psutil.process_iter(["cmdline"])
                    if mine in (found.info["cmdline"] or ())
                    and not _is_below(found, job.process.pid)
                ]

            wait_until(lambda: len(apart("killed")) == 2, 60)
            left = apart("killed")
            job.turn(tenant=True)
            # Below the job it would be a part of it, and no other tenant.
            wait_until(lambda: bool(apart("tenant")))
            tenants = apart("tenant")
            job.turn()
            wait_until(lambda: all(is_gone(one) for one in tenants))
            assert not any(is_gone(one) for one in left)
            job.process.kill()
            wait_until(lambda: all(is_gone(one) for one in left))


def _is_below(process: psutil.Process, pid: int) -> bool:
    try:
        return pid in {parent.pid for parent in process.parents()}
    except psutil.NoSuchProcess:
        return False


@needs_torch
@pytest.mark.parametrize("job_is", ["asked to end", "killed"])
def test_large_batches_are_not_left_in_dev_shm(
    tmp_path: Path, warm_torch: WarmTorch, job_is: str
) -> None:
    """However the job ends while a worker makes a batch: all of its processes are asked to end,
    or itself is killed first."""
    large = (*QUICK, "--sample-kib", "32768", "--workers", "1", "--no-report")
    with practice_job(warm_torch, tmp_path, *large) as job:
        job.until_it_says("training")
        (worker,) = job.workers()

        def half_made() -> bool:
            # Once it is all there PyTorch takes the name away.
            return bool(list(Path("/dev/shm").glob(f"torch_{worker.pid}_*")))

        wait_until(half_made)
        if job_is == "killed":
            job.process.kill()
        os.killpg(job.process.pid, signal.SIGTERM)
        try:
            wait_until(lambda: is_gone(worker))
            assert not half_made()
        finally:
            for file in Path("/dev/shm").glob(f"torch_{worker.pid}_*"):
                file.unlink()


class TestWithoutAJob:
    @pytest.mark.parametrize(
        ("command", "says"),
        [
            ("gpuwatch.practice.train healthy", "pip install 'gpuwatch-tui[torch]'"),
            ("gpuwatch demo-job healthy", "pip install 'gpuwatch-tui[torch]'"),
            ("gpuwatch.practice.train thermal_throttle", "gpuwatch --demo throttled"),
        ],
    )
    def test_what_cannot_be_run(self, command: str, says: str) -> None:
        """Where PyTorch is not installed one sentence says how to install it; a cause that cannot
        be practised is refused with what shows it instead."""
        done = ran("-c", NO_TORCH, *command.split(), cwd=ROOT)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert says in done.stderr

    def test_no_such_device(self, tmp_path: Path, warm_torch: WarmTorch) -> None:
        """A device that is not there is a sentence, and the job ends."""
        pytest.importorskip("torch", reason="torch is not installed")
        with practice_job(warm_torch, tmp_path, "--device", "nobody:home") as job:
            said = job.rest()
        assert job.process.returncode == 2
        assert any("The device nobody:home was not found" in line for line in said)
        assert not any("Traceback" in line for line in said)


NO_TORCH = """
import runpy, sys
sys.modules["torch"] = None
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
