"""What real processes report of their loops, as gpuwatch reads it."""

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.model import Job, ProcessKey, TrainingLoop
from gpuwatch.jobs.loop import step_file, writer
from gpuwatch.jobs.loop.reader import LOOK_SECONDS, LoopReader, loop_of
from gpuwatch.jobs.loop.step_file import Counters, Now, Record
from gpuwatch.jobs.loop.writer import StepFile
from gpuwatch.jobs.words import job_loading_sentence
from tests.jobs.tracking.watching import key_of, members, watching
from tests.support.children import Children, wait_until
from tests.support.snapshots import snapshot, stream_lines
from tests.torch.support import PATH, files_below, packed

SECOND = 1_000_000_000

REPORT = PATH + (
    "import os\n"
    "os.environ['XDG_RUNTIME_DIR'] = sys.argv[1]\n"
    "from gpuwatch.torch import step, watch\n"
    "for number in range(7):\n"
    "    for _ in watch([[0] * 8]):\n"
    "        pass\n"
    "ready()\n"
)


class Scene:
    """Processes that report into this test's own folder, and the reader of that one only."""

    def __init__(self, started: Children, place: Path) -> None:
        self.started = started
        self.place = place
        self.files = LoopReader(folders=lambda _: [(str(place), ("gpuwatch", "steps"))])

    def report(self, then: str = "wait()", code: str = REPORT) -> subprocess.Popen[bytes]:
        child = self.started.python(code + then, str(self.place))
        self.started.ready(child)
        return child

    def look(self, now: float, ranks: Sequence[ProcessKey] = ()) -> list[ProcessKey]:
        """The processes that report."""
        self.files.look(now, ranks)
        return list(self.files.reporting)

    def read(self, key: ProcessKey) -> TrainingLoop:
        return self.files.read(key, time.time())


@pytest.fixture
def scene(started: Children, place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    made = Scene(started, place)
    yield made
    made.files.close()


# Who is believed


def test_a_process_that_reports_is_read(scene: Scene) -> None:
    """Its counts, under the key that gpuwatch knows it by; also of a file that is cut short, which
    would end gpuwatch if it were mapped."""
    assert scene.look(0.0) == []
    child = scene.report()
    key = key_of(child.pid)
    assert scene.look(LOOK_SECONDS) == [key]
    loop = scene.read(key)
    assert loop.key == key
    assert (loop.steps, loop.epoch, loop.batch_size, loop.phase) == (7, 6, 8, "idle")
    assert loop.reported_at_unix_seconds == pytest.approx(time.time(), abs=30)
    os.truncate(files_below(scene.place)[0], 10)
    assert scene.read(key).steps == 7


def test_a_killed_process_is_forgotten_and_its_file_removed(scene: Scene) -> None:
    """It could not remove it itself. Its last words can be read until the next look, and a later
    process reports for itself."""
    child = scene.report()
    scene.files.look(0.0)
    key = key_of(child.pid)
    child.kill()
    child.wait()
    assert len(files_below(scene.place)) == 1
    assert scene.read(key)
    second = scene.report()
    assert scene.look(LOOK_SECONDS) == [key_of(second.pid)]
    assert len(files_below(scene.place)) == 1
    assert scene.files.read(key, 0.0) is None


def test_killed_while_it_writes(scene: Scene) -> None:
    """At any moment a reader gets whole records, also of a process stopped in the middle."""
    child = scene.report("for _ in watch([0] * 10**9): pass")
    key = key_of(child.pid)
    scene.files.look(0.0)
    for _ in range(300):
        assert scene.read(key).steps is not None
    for _ in range(20):
        child.send_signal(signal.SIGSTOP)
        assert scene.read(key)
        child.send_signal(signal.SIGCONT)
    child.kill()
    child.wait()
    assert scene.look(LOOK_SECONDS) == []


HEADERS = ("version", "pid", "start", "namespace")
"""What can be wrong with a header."""


def header_of(pid: int, spoiled: str = "") -> bytes:
    """A whole file without a record, as that process would write it, less what is ``spoiled``."""
    header = step_file.HEADER.pack(
        step_file.MAGIC,
        2 if spoiled == "version" else 1,
        1024,
        os.getpid() if spoiled == "pid" else pid,
        writer.start_ticks_of(pid) + (spoiled == "start"),
        1 if spoiled == "namespace" else writer.own_pid_namespace(),
    )
    return header.ljust(1024, b"\0")


def planted(place: Path, pid: int, data: bytes, ticks: int | None = None) -> Path:
    """A file in the folder, under the name that belongs to that process."""
    folder = place / "gpuwatch" / "steps"
    folder.mkdir(parents=True, mode=0o700)
    (place / "gpuwatch").chmod(0o700)
    path = folder / writer.file_name(pid, ticks or writer.start_ticks_of(pid))
    path.write_bytes(data)
    return path


def test_a_spoiled_file_is_not_believed(scene: Scene) -> None:
    """The process is there, and the file is not what it should be."""
    child = scene.started.waiting()
    whole = header_of(child.pid)
    spoiled = [header_of(child.pid, part) for part in HEADERS]
    path = planted(scene.place, child.pid, b"")
    for number, data in enumerate([*spoiled, whole + b"\0", b"", os.urandom(1024)]):
        path.write_bytes(data)
        assert scene.look(number * LOOK_SECONDS) == []
    # So it was for this reason: whole, it is taken.
    path.write_bytes(whole)
    assert scene.look(100.0) == [key_of(child.pid)]
    assert scene.files.read(key_of(child.pid), 0.0) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user, too")
def test_a_file_speaks_for_processes_of_its_owner_only(scene: Scene) -> None:
    """In a folder of one user, a file of that user about a process of another."""
    child = subprocess.Popen(["sleep", "600"], user=65534)
    try:
        planted(scene.place, child.pid, header_of(child.pid))
        assert scene.look(0.0) == []
    finally:
        child.kill()
        child.wait()


HOLD = "import os\nheld = os.open(sys.argv[1], os.O_RDWR)"


def test_a_descriptor_is_believed_as_a_file_is(scene: Scene, tmp_path: Path) -> None:
    """What a process holds open can be anybody's file. (Its PID namespace is that of the process,
    whatever the file says: a container has one of its own.)"""
    path = tmp_path / "1-1.steps"
    path.write_bytes(b"")
    child = scene.started.waiting(HOLD, str(path))
    for spoiled in ("version", "pid", "start", "namespace", ""):
        path.write_bytes(header_of(child.pid, spoiled))
        reader = LoopReader(folders=lambda _: [])
        for now in (0.0, 10.0):
            reader.look(now, [key_of(child.pid)])
        believed = [key_of(child.pid)] if spoiled in ("", "namespace") else []
        assert list(reader.reporting) == believed
        reader.close()


def test_what_a_process_holds_is_looked_at_before_it_is_opened(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open a device, or a pipe, does things."""
    path = tmp_path / "1-1.steps"
    os.mkfifo(path)
    child = scene.started.waiting(HOLD, str(path))
    opened = []
    true_open = os.open

    def noting(path: str, flags: int, *more: int, **named: int | None) -> int:
        if not flags & os.O_PATH:
            opened.append(path)
        return true_open(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", noting)
    for now in (0.0, 10.0):
        scene.files.look(now, [key_of(child.pid)])
    assert [path for path in opened if str(path).startswith("/proc/self/fd/")] == []


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "hard link", "another user's"])
def test_what_is_planted_is_not_followed(scene: Scene, kind: str) -> None:
    """In the place of a file, for a process that is there."""
    if kind == "another user's" and os.geteuid() != 0:
        pytest.skip("only root can make another user's file")
    scene.report()
    (path,) = files_below(scene.place)
    moved = scene.place / "moved"
    path.rename(moved)
    plant = {
        "link": lambda: path.symlink_to(moved),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "hard link": lambda: path.hardlink_to(moved),
        "another user's": lambda: os.chown(moved.rename(path), 65534, 65534),
    }
    plant[kind]()
    assert scene.look(0.0) == []


def test_a_file_whose_folder_is_gone_is_found_by_its_descriptor(scene: Scene) -> None:
    """The runtime folder goes when its user logs out; the job does not."""
    child = scene.report()
    shutil.rmtree(scene.place / "gpuwatch")
    key = key_of(child.pid)
    scene.look(0.0, [key])
    assert scene.look(10.0, [key]) == [key]
    assert scene.read(key).steps == 7


def test_what_a_child_inherited_is_not_its_own(scene: Scene) -> None:
    """A loader worker holds its parent's file too."""
    child = scene.report("child = os.fork()\nif child == 0: time.sleep(600)\nready(child); wait()")
    worker = int(scene.started.ready(child))
    shutil.rmtree(scene.place / "gpuwatch")
    scene.look(0.0, [key_of(worker)])
    assert scene.look(10.0, [key_of(worker)]) == []


def test_a_process_that_runs_another_program_reports_anew(scene: Scene) -> None:
    """After an exec it is the same process, and its old file speaks of the program before."""
    code = (
        "ready()\n"
        "sys.stdin.readline()\n"
        "os.execv(sys.executable, [sys.executable, '-S', '-c', sys.argv[2], sys.argv[1]])\n"
    )
    again = (
        "import os, sys\n"
        + REPORT.replace("range(7)", "range(3)").replace("ready()", "os.write(1, b'x\\n')")
        + "sys.stdin.read()"
    )
    child = scene.started.python(REPORT + code, str(scene.place), again)
    scene.started.ready(child)
    scene.started.ready(child)
    scene.files.look(0.0)
    key = key_of(child.pid)
    child.stdin.write(b"\n")
    child.stdin.flush()
    scene.started.ready(child)
    assert scene.look(LOOK_SECONDS) == [key]
    assert scene.read(key).steps == 3


def test_a_recycled_number_does_not_inherit_what_was_reported(scene: Scene) -> None:
    """The file of a process that ended says nothing of the one that has its number now."""
    child = scene.started.waiting()
    data = header_of(child.pid, "start")
    path = planted(scene.place, child.pid, data, writer.start_ticks_of(child.pid) + 1)
    with path.open("rb") as held:
        # As a writer in another PID namespace would, so that it is not removed as dead.
        fcntl.flock(held, fcntl.LOCK_SH)
        scene.files.look(0.0)
        assert path.exists()
    assert list(scene.files.reporting) == []


# What a job shows


def test_a_job_has_the_loops_of_its_ranks(scene: Scene) -> None:
    """A process that nothing else shows to be a rank is one because it reports."""
    child = scene.report()
    with watching() as watch:
        wait_until(lambda: any(job.loops for job in watch.look_at_all(after=LOOK_SECONDS)))
        job = watch.job()
        member = members(job)[child.pid]
        assert (member.role, member.role_sign) == ("rank", "uses gpuwatch.torch")
        assert [loop.pid for loop in job.loops] == [rank.pid for rank in job.ranks] == [child.pid]
        assert job.loop_of(job.ranks[0]) is job.loops[0]
        child.kill()
        child.wait()
        # Of this job: other programs on this machine may have left workers over.
        assert watch.look(after=LOOK_SECONDS) == ()


def test_a_job_that_begins_to_report_shows_it(scene: Scene) -> None:
    """It was attached to before."""
    child = scene.started.python(
        "ready(); sys.stdin.readline()\n" + REPORT + "wait()", str(scene.place)
    )
    scene.started.ready(child)
    with watching(child.pid) as watch:
        assert watch.job().loops == ()
        child.stdin.write(b"\n")
        child.stdin.flush()
        scene.started.ready(child)
        (loop,) = watch.job(after=LOOK_SECONDS).loops
        assert loop.steps == 7


def test_a_rank_says_which_it_is(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment was set when it ran already, where nobody sees it from outside."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    code = REPORT.replace(
        "for number in range(7):\n",
        "rank = 1 if os.fork() else 0\n"
        "os.environ.update(RANK=str(2 + rank), LOCAL_RANK=str(rank), WORLD_SIZE='4')\n"
        "for number in range(7):\n",
    )
    child = scene.started.python(code + "time.sleep(600)", str(scene.place))
    for _ in range(2):
        scene.started.ready(child)
    with watching(child.pid) as watch:
        watch.job()
        watch.job(after=LOOK_SECONDS)
        job = watch.job(after=LOOK_SECONDS)
        assert [(rank.rank, rank.local_rank) for rank in job.ranks] == [(2, 0), (3, 1)]
        assert job.ranks[1].pid == child.pid
        assert job.world_size == 4
        assert [job.loop_of(rank) for rank in job.ranks] == list(job.loops)
        assert members(job)[child.pid].rank == 3


def test_a_rank_says_how_it_loads(scene: Scene) -> None:
    """What cannot be seen from outside: that there are no workers, and that memory is pinned."""
    code = REPORT.replace(
        "for number in range(7):\n",
        "class Loader(list):\n    num_workers, pin_memory = 0, True\nfor number in range(7):\n",
    ).replace("watch([[0] * 8])", "watch(Loader([[0] * 8]))")
    with watching(scene.report(code=code).pid) as watch:
        watch.job()
        job = watch.job(after=LOOK_SECONDS)
        (rank,) = job.ranks
        assert (rank.loader_workers, rank.loader_workers_guessed) == (0, False)
        assert rank.pinned_memory is True
        assert rank.loader_workers_sign == "it reports that its loader has num_workers=0"
        assert job_loading_sentence(job).startswith("no workers: any loading runs in the training")


@pytest.mark.parametrize("rank", [step_file.NONE, 10**9, 2**61])
def test_a_rank_that_cannot_be_is_not_shown(scene: Scene, rank: int) -> None:
    """Nor one that was not reported."""
    said = record(rank=rank, local_rank=2**61, world_size=2**61)
    file = StepFile.create({"XDG_RUNTIME_DIR": str(scene.place)})
    try:
        file.write(packed(said))
        scene.files.look(0.0)
        key = key_of(os.getpid())
        assert scene.files.rank_of(key) is None
        scene.files.read(key, 0.0)
        assert scene.files.rank_of(key) is None
        file.write(packed(said._replace(now=said.now._replace(rank=5, sequence=6))))
        scene.files.read(key, 0.0)
        found = scene.files.rank_of(key)
        assert found == (5, None, None)
    finally:
        file.close()


# What the numbers mean


def record(**changes: int) -> Record:
    """Ten seconds of a loop: 100 steps of 8 samples, 4 s waiting, 5 s in steps."""
    zero = Counters(*[0] * len(Counters._fields))
    base = zero._replace(at_ns=100 * SECOND, last_step_ns=100 * SECOND, steps=10, samples=80)
    counters = base._replace(
        at_ns=110 * SECOND,
        steps=110,
        samples=880,
        wait_ns=4 * SECOND,
        step_ns=5 * SECOND,
        between_ns=1 * SECOND,
        last_step_ns=110 * SECOND,
    )
    now = Now(*[step_file.NONE] * len(Now._fields))._replace(
        sequence=5, began_ns=90 * SECOND, state=step_file.STEP, flags=step_file.WAITS_REPORTED
    )
    own = {name: value for name, value in changes.items() if name in Counters._fields}
    moving = {name: value for name, value in changes.items() if name in Now._fields}
    return Record(now._replace(**moving), counters._replace(**own), base)


def loop(reported: Record, seconds: float = 110.0) -> TrainingLoop:
    return loop_of((1, None), reported, int(seconds * SECOND), 1000.0 + seconds)


def test_rates_and_shares_are_of_the_last_ten_seconds() -> None:
    """Differences to the counters of then."""
    found = loop(record())
    assert found.window_seconds == 10.0
    assert found.steps == 110
    assert found.steps_per_second == pytest.approx(10.0)
    assert found.samples_per_second == pytest.approx(80.0)
    assert found.data_wait_share == pytest.approx(0.4)
    assert found.compute_share == pytest.approx(0.5)
    assert (found.compute_on_device, found.copy_share) == (False, None)
    assert found.validation_share == found.checkpoint_share == 0.0
    # Since its first report, without a window.
    assert found.spent_seconds == (4.0, 5.0, None, 0.0, 0.0)
    assert found.reported_at_unix_seconds == 1110.0


def test_a_wait_that_lasts_is_counted_while_it_lasts() -> None:
    """No step ends, and the share grows, the rates fall."""
    waiting = record(state=step_file.WAIT)
    found = [loop(waiting, seconds) for seconds in (110.0, 115.0, 130.0)]
    shares = [one.data_wait_share for one in found]
    assert shares == pytest.approx([4 / 10, 9 / 15, 24 / 30])
    assert (found[0].steps_per_second or 0.0) > 2 * (found[2].steps_per_second or 0.0) > 0.0
    assert [one.reported_at_unix_seconds for one in found] == [1110.0] * 3
    assert found[2].phase == "train"


def test_few_slow_steps_have_a_steady_rate() -> None:
    """From step to step, not steps in a window."""
    slow = record(steps=12, last_step_ns=108 * SECOND)
    rates = [loop(slow, seconds).steps_per_second for seconds in (110.0, 110.9)]
    assert rates == pytest.approx([0.25, 0.25])


def test_compute_is_the_devices_where_it_was_measured() -> None:
    """Steps that could not be measured count like the others; copies stand beside them."""
    device = record(
        flags=step_file.WAITS_REPORTED | step_file.DEVICE_TIMED | step_file.COPIES_TIMED,
        device_step_ns=3 * SECOND,
        device_steps_measured=50,
        device_steps_skipped=50,
        device_copy_ns=1 * SECOND,
        device_copies_measured=100,
    )
    found = loop(device)
    assert (found.compute_share, found.compute_on_device) == (pytest.approx(0.6), True)
    assert found.copy_share == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("state", "seconds", "phase"),
    [
        (step_file.IDLE, 110.0, "idle"),
        (step_file.WAIT, 500.0, "train"),
        (step_file.STEP, 110.0, "train"),
        (step_file.COPY, 110.0, "train"),
        (step_file.VALIDATION, 500.0, "validation"),
        (step_file.CHECKPOINT, 110.0, "checkpoint"),
        (step_file.BETWEEN, 120.0, "train"),
        (step_file.BETWEEN, 500.0, "idle"),
    ],
)
def test_the_phase_is_what_it_does_now(state: int, seconds: float, phase: str) -> None:
    """Long after the last of steps that nobody loops over, nothing."""
    assert loop(record(state=state), seconds).phase == phase


def test_what_cannot_be_known_is_not_shown() -> None:
    """Waits of a loop of steps alone, a record from the future (another machine's clock), and
    rates at the very beginning: nothing is divided by no time."""
    assert loop(record(flags=0)).data_wait_share is None
    assert loop_of((1, None), record(), 90 * SECOND, 0.0) is None
    first = record()
    found = loop_of((1, None), first._replace(counters=first.base), 100 * SECOND, 0.0)
    assert (found.window_seconds, found.data_wait_share) == (0.0, None)
    assert found.steps_per_second is None


_ANY = st.integers(0, 2**62 - 1)
_ABOUT = st.integers(-1, 2**62 - 1)


@given(
    st.lists(_ABOUT, min_size=len(Now._fields), max_size=len(Now._fields)),
    st.lists(_ANY, min_size=len(Counters._fields), max_size=len(Counters._fields)),
    st.lists(_ANY, min_size=len(Counters._fields), max_size=len(Counters._fields)),
    st.sampled_from([0, 1, SECOND, 2**62, 2**63]),
    st.integers(0, step_file.STATES - 1),
)
def test_whatever_a_record_says_its_shares_are_shares(
    now: list[int], some: list[int], more: list[int], later: int, state: int
) -> None:
    """A writer can put any numbers into its own file: none of them breaks what reads it."""
    base = Counters._make([min(pair) for pair in zip(some, more, strict=True)])
    counters = Counters._make([max(pair) for pair in zip(some, more, strict=True)])
    moving = Now._make(now)._replace(state=state, began_ns=0)
    found = loop_of((1, None), Record(moving, counters, base), counters.at_ns + later, 1e9)
    for name in ("data_wait", "copy", "compute", "validation", "checkpoint"):
        share = getattr(found, f"{name}_share")
        assert share is None or 0.0 <= share <= 1.0
    for rate in (found.steps_per_second, found.samples_per_second):
        assert rate is None or 0.0 <= rate < float("inf")
    assert stream_lines(snapshot(jobs=(Job(pid=1, loops=(found,)),)))
