"""``gpuwatch report FILE``, ``compare`` and ``export``: what is printed and written, how they
fail."""

import csv
import gzip
import io
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.commands.cli import run
from tests.support.recordings import recorded, simulated, written

LOG = """timestamp, index, uuid, name, utilization.gpu [%], memory.used [MiB], power.draw [W]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recordings")
    recorded(made / "starved.jsonl", "starved")
    recorded(made / "healthy.jsonl.gz", "healthy")
    return made


@pytest.fixture
def starved(folder: Path) -> str:
    return str(folder / "starved.jsonl")


@pytest.fixture
def healthy(folder: Path) -> str:
    return str(folder / "healthy.jsonl.gz")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten minutes of what ``nvidia-smi --query-gpu`` printed, a line in two seconds."""
    path = tmp_path / "smi.csv"
    rows = [
        f"2026/03/01 20:{second // 60:02}:{second % 60:02}.000, 0, GPU-1, NVIDIA H200, "
        f"{100 if second % 20 < 10 else 0} %, 1000 MiB, 200.00 W\n"
        for second in range(0, 600, 2)
    ]
    path.write_text(LOG + "".join(rows), encoding="utf-8")
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The sentence; the exit code is 2."""
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    return shown.err


# --- report ----------------------------------------------------------------------------------


def test_a_recording_has_a_report(starved: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In 80 columns where there is no terminal, without colours."""
    assert run(["report", starved]) == 0
    text = capsys.readouterr().out
    assert "loader_cpu_bound" in text
    assert "\x1b" not in text
    assert max(len(line) for line in text.split("\n")) <= 80


def test_standard_input_is_read(
    starved: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``-``."""
    stream = io.TextIOWrapper(io.BytesIO(Path(starved).read_bytes()))
    monkeypatch.setattr("sys.stdin", stream)
    assert printed(capsys, "report", "-")["source"]["name"] == "standard input"


def test_an_nvidia_smi_log_has_a_report(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Busy, energy and memory are those of its lines."""
    value = printed(capsys, "report", str(log))
    (gpu,) = value["gpus"]
    assert value["source"]["kind"] == "query"
    assert gpu["busy_percent"] == pytest.approx(50, abs=1)
    assert gpu["energy_joules"] == pytest.approx(200 * 598, rel=0.01)
    assert gpu["memory_peak_bytes"] == 1000 * 2**20
    assert gpu["period_seconds"] == pytest.approx(20, abs=1)


def test_a_part_of_the_time_alone(starved: str, capsys: pytest.CaptureFixture[str]) -> None:
    """From the start, from the end, and between the two."""
    whole = printed(capsys, "report", starved)["time"]
    late = printed(capsys, "report", starved, "--from", "+40s")["time"]
    assert late["begin_unix_seconds"] == whole["begin_unix_seconds"] + 40
    early = printed(capsys, "report", starved, "--to", "-20s")["time"]
    assert early["end_unix_seconds"] == whole["end_unix_seconds"] - 20
    both = printed(capsys, "report", starved, "--from", "-50s", "--to", "+30s")["time"]
    assert both["snapshots"] == 22


def test_a_part_with_nothing_in_it_is_refused(
    starved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a sentence each."""
    error = refused(capsys, "report", starved, "--from", "+10m")
    assert "nothing between --from and --to" in error
    error = refused(capsys, "report", starved, "--from", "+30s", "--to", "+20s")
    assert "--to is not after --from" in error
    assert "write it as 14:30" in refused(capsys, "report", starved, "--from", "noon")


def test_a_name_to_write_to_is_needed(starved: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of nothing there is a sentence, not what the folder says."""
    for command in (["report", starved, "--html", ""], ["export", starved, "--csv", ""]):
        assert "is empty" in refused(capsys, *command)


def test_lines_of_something_else_are_no_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON lines that another program wrote."""
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text('{"hello": 1}\n' * 20, encoding="utf-8")
    assert "no reading of a GPU" in refused(capsys, "report", str(foreign))


def test_one_job_is_reported_alone(starved: str, capsys: pytest.CaptureFixture[str]) -> None:
    """That of any of its processes; a PID that is not there is refused."""
    job = printed(capsys, "report", starved)["jobs"][0]["pid"]
    value = printed(capsys, "report", starved, "--pid", str(job))
    assert value["pid"] == job
    assert [each["pid"] for each in value["jobs"]] == [job]
    assert "no job with a process 99" in refused(capsys, "report", starved, "--pid", "99")


def test_html_is_one_whole_file(
    starved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another of that name is replaced, nothing is left beside it, nothing is printed."""
    out = tmp_path / "out.html"
    out.write_text("old", encoding="utf-8")
    assert run(["report", starved, "--html", str(out)]) == 0
    assert capsys.readouterr().out == ""
    text = out.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.endswith("</html>\n")
    assert os.listdir(tmp_path) == ["out.html"]  # noqa: PTH208 - names are enough
    # It has command lines in it, as the recording has.
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_markdown_is_printed(starved: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With a heading."""
    assert run(["report", starved, "--md"]) == 0
    assert capsys.readouterr().out.startswith("# GPU report (simulated)")


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Of both commands."""
    for command in ("report", "compare"):
        assert run([command, "--schema"]) == 0
        assert json.loads(capsys.readouterr().out)["$defs"]


def test_what_is_cut_off_is_read_as_far_as_it_goes(
    starved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what was left out is said."""
    data = Path(starved).read_bytes()
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(data[: len(data) * 2 // 3])
    value = printed(capsys, "report", str(torn))
    assert 20 < value["time"]["snapshots"] < 60
    assert value["source"]["left_out_lines"] == 1
    packed = tmp_path / "torn.jsonl.gz"
    whole = gzip.compress(data)
    packed.write_bytes(whole[: len(whole) * 2 // 3])
    value = printed(capsys, "report", str(packed))
    assert 0 < value["time"]["snapshots"] < 60
    assert value["source"]["notes"]


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"hello\n", b"\x1f\x8b broken", b"{}\n", b"\0" * 99]
)
def test_what_is_no_recording_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    """In one sentence, by each of the commands."""
    path = tmp_path / "nothing"
    path.write_bytes(content)
    out = tmp_path / "out.csv"
    for arguments in (
        ("report", str(path)),
        ("compare", str(path), str(path)),
        ("export", str(path), "--csv", str(out)),
    ):
        assert refused(capsys, *arguments).count("\n") <= 4
    assert not out.exists()


def test_a_recording_is_never_overwritten(
    starved: str, healthy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By what is made of it, under any name."""
    before = Path(starved).read_bytes()
    for arguments in (
        ("report", starved, "--html", starved),
        ("compare", starved, healthy, "--html", os.path.relpath(starved)),
        ("export", starved, "--csv", starved),
    ):
        assert "is the recording itself" in refused(capsys, *arguments)
    assert Path(starved).read_bytes() == before


def test_what_cannot_be_written_is_said(
    starved: str, healthy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 74."""
    nowhere = str(tmp_path / "no" / "out")
    for arguments in (
        ("report", starved, "--html", nowhere),
        ("report", starved, "--html", "/dev/full"),
        ("compare", starved, healthy, "--html", nowhere),
        ("export", starved, "--csv", nowhere),
        ("export", starved, "--csv", "/dev/full"),
    ):
        assert run(arguments) == 74
        assert "cannot be written" in capsys.readouterr().err


def test_options_of_recordings_are_not_for_kept_reports(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would look accepted and do nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert "report FILE --pid" in refused(capsys, "report", "1", "--pid", "7")
    assert "Choose one" in refused(capsys, "report", "x", "--json", "--md")


def test_hostile_names_reach_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recording that somebody made by hand."""
    path = written(tmp_path / "hostile.jsonl", simulated("starved", 20))
    text = path.read_text(encoding="utf-8").replace("train.py", "\\u001b]0;x\\u0007\\u202e")
    path.write_text(text, encoding="utf-8")
    for form in ((), ("--md",), ("--json",)):
        assert run(["report", str(path), *form]) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "\u202e" not in out


# --- compare ---------------------------------------------------------------------------------


def test_two_recordings_are_compared(
    starved: str, healthy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As text, JSON, Markdown and HTML."""
    assert run(["compare", starved, healthy]) == 0
    assert "Gone: loader_cpu_bound." in " ".join(capsys.readouterr().out.split())
    value = printed(capsys, "compare", starved, healthy)
    assert value["comparable"] is True
    assert [found["state"] for found in value["findings"]] == ["gone"]
    assert run(["compare", starved, healthy, "--md"]) == 0
    assert "| GPU busy |" in capsys.readouterr().out
    out = tmp_path / "out.html"
    assert run(["compare", starved, healthy, "--html", str(out)]) == 0
    assert "Gone: loader_cpu_bound" in out.read_text(encoding="utf-8")


def test_a_log_and_a_recording_are_compared_with_doubts(
    starved: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are of other machines and lengths."""
    value = printed(capsys, "compare", starved, str(log))
    assert value["comparable"] is False
    assert len(value["doubts"]) >= 2


def test_compare_wants_two(starved: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And not standard input twice."""
    assert "Name two recordings" in refused(capsys, "compare", starved)
    assert "Only one of the two" in refused(capsys, "compare", "-", "-")


# --- export ----------------------------------------------------------------------------------


def test_tables_are_written(
    starved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One row per GPU and time, one per process and time, one per time; gzip by ending."""
    gpus, processes, host = (tmp_path / name for name in ("g.csv", "p.csv.gz", "h.csv"))
    arguments = ["--csv", str(gpus), "--processes", str(processes), "--host", str(host)]
    assert run(["export", starved, *arguments]) == 0
    assert capsys.readouterr().out == ""
    rows = list(csv.DictReader(io.StringIO(gpus.read_text(encoding="utf-8"))))
    assert len(rows) == 120
    assert len(host.read_text(encoding="utf-8").split("\n")) == 62
    with gzip.open(processes, "rt", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert {row["role"] for row in found} >= {"launcher", "rank", "loader_worker"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (gpus, processes, host)} == {0o600}


def test_csv_goes_to_standard_output(starved: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As ``-``, of the part of the time that is asked for."""
    assert run(["export", starved, "--csv", "-", "--from", "+50s"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 20
    assert rows[0]["time_utc"] == "2026-03-01T20:00:50.000Z"


def test_export_must_be_asked_what_to_write(
    starved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not two tables to one place."""
    assert "Say what to write" in refused(capsys, "export", starved)
    error = refused(capsys, "export", starved, "--csv", "-", "--host", "-")
    assert "same place" in error
