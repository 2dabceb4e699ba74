"""Sampled stacks as text and as JSON."""

import pytest

from gpuwatch.jobs.stacks.report import StackReport, shares_of
from gpuwatch.jobs.stacks.sampler import parse_raw
from gpuwatch.outputs.stacks import process_object, stacks_page
from gpuwatch.outputs.terminal import cell_width

SITE = "/opt/venv/lib/python3.11/site-packages/torch"
LOOP = (
    f"<module> (/w/train.py:9);epoch (/w/train.py:28);__next__ ({SITE}/utils/data/dataloader.py:5)"
)
LOADING = f"{LOOP};fetch ({SITE}/utils/data/_utils/fetch.py:54);augment (/w/data.py:16)"
BACKWARD = f"<module> (/w/train.py:9);epoch (/w/train.py:31);backward ({SITE}/_tensor.py:6)"
FORWARD = (
    f"<module> (/w/train.py:9);epoch (/w/train.py:30);f ({SITE}/nn/x.py:1);forward (/w/m.py:3)"
)
REDUCE = f"<module> (/w/train.py:9);all_reduce ({SITE}/distributed/distributed_c10d.py:28)"


def report(*parts: tuple[str, int], errors: int = 0, **changes: object) -> StackReport:
    found = parse_raw("".join(f"thread (1): M;{text} {count}\n" for text, count in parts))
    facts: dict[str, object] = {
        "pid": 42,
        "command": "python train.py",
        "seconds": 10.02,
        "samples": sum(count for _text, count in parts),
        "errors": errors,
        "shares": shares_of(found, errors, lambda file, line: f"{file} {line}"),
        "cpu_seconds": 0.2,
    }
    return StackReport(**{**facts, **changes})  # type: ignore[arg-type]


def test_a_page_of_one_process() -> None:
    """Shares, the user's lines below, what it cost last."""
    page = stacks_page([report((LOADING, 120), (BACKWARD, 50), (FORWARD, 30))], width=80)
    assert page == (
        "PID 42: 200 samples in 10 s  python train.py\n"
        "  60%  ██████      loading data in this process\n"
        "      60%  data.py:16 (augment)  /w/data.py 16\n"
        "  40%  ████        computing\n"
        "      25%  train.py:31 (epoch)  /w/train.py 31\n"
        "      15%  m.py:3 (forward)     /w/m.py 3\n"
        "\n"
        "py-spy used 2.0% of a core for 10 s; the job was never paused."
    )


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_of_shares_is_wider_than_asked(width: int) -> None:
    """Wide characters in file names count two."""
    wide = LOADING.replace("augment", "拡張" * 30)
    page = stacks_page([report((wide, 12), (BACKWARD, 5))], width=width)
    shares = page.split("\n\n", maxsplit=1)[0]
    assert all(cell_width(line) <= width for line in shares.splitlines())


def test_a_line_with_hardly_any_samples_is_left_out() -> None:
    """Unless its share has no other."""
    page = stacks_page([report((FORWARD, 198), (BACKWARD, 1), (LOADING, 1))], width=100)
    assert "train.py:31" not in page
    assert "data.py:16" in page


def test_ascii_only() -> None:
    """For an output that has no blocks."""
    page = stacks_page([report((BACKWARD, 30), (LOADING, 10))], width=50, ascii_only=True)
    assert " 75%  ########  " in page
    assert page.isascii()


def test_ranks_are_compared() -> None:
    """One sentence says which of them the others wait for."""
    page = stacks_page(
        [
            report((REDUCE, 80), (BACKWARD, 20), rank=0),
            report((LOADING, 70), (BACKWARD, 30), rank=1, pid=43),
        ],
        width=100,
    )
    assert " ".join(page.split()).startswith(
        "rank 1 waits least in collectives (0%, rank 0 80%): the others wait for it. Most of its "
        "time: 70% loading data in this process at data.py:16 (augment)."
    )
    assert "py-spy used 4.0% of a core for 2 processes, 10 s; the job was never paused." in page


def test_many_ranks_get_a_sentence_each() -> None:
    """Their lines would not fit any screen."""
    page = stacks_page([report((BACKWARD, 9), rank=n, pid=n) for n in range(12)], width=60)
    assert "rank 7: 100% computing at train.py:31 (epoch)" in page
    assert "samples in" not in page


def test_a_problem_stands_beside_what_was_seen() -> None:
    """One rank of another user takes nothing from the others."""
    page = stacks_page(
        [
            report((BACKWARD, 9), rank=0),
            StackReport(pid=50, rank=1, problem="Process 50 has ended."),
        ],
        width=80,
    )
    assert "rank 1: Process 50 has ended." in page
    assert "train.py:31 (epoch)" in page


@pytest.mark.parametrize("errors", [40, 5])
def test_many_failed_attempts_are_explained(errors: int) -> None:
    """What was not read is not like the rest; a few are a share like the others."""
    page = stacks_page([report((BACKWARD, 100 - errors), errors=errors)], width=100)
    assert "not readable" in page
    assert ("40% of the attempts failed" in page) == (errors == 40)


def test_json_has_the_fields_it_promises() -> None:
    """A process, its shares, their lines."""
    process = process_object(report((LOADING, 3), (BACKWARD, 1), rank=0))
    assert (process["pid"], process["rank"], process["samples"]) == (42, 0, 4)
    share = process["shares"][0]
    assert (share["category"], share["percent"]) == ("loading_data", 75.0)
    assert share["lines"] == [
        {
            "file": "/w/data.py",
            "line": 16,
            "function": "augment",
            "samples": 3,
            "percent": 75.0,
            "doing": "loading_data",
            "source": "/w/data.py 16",
        }
    ]
    assert process["cost"] == {
        "cpu_seconds": 0.2,
        "cpu_percent": pytest.approx(2.0, abs=0.01),
    }
    # Of a refusal what is missing is null or empty, never zero percent.
    refused = StackReport(pid=50, problem="Process 50 has ended.")
    process = process_object(refused)
    assert process["problem"] == "Process 50 has ended."
    assert (process["shares"], process["cost"]["cpu_percent"]) == ([], None)


def test_a_pid_is_said_once() -> None:
    """A loader worker is known by its PID; a rank has its number, and the PID beside it."""
    worker = report((LOADING, 120), rank=0, role="loader_worker")
    assert stacks_page([worker], width=80).startswith("loader worker 42: 120 samples")
    rank = report((LOADING, 120), rank=0)
    assert stacks_page([rank], width=80).startswith("rank 0 (PID 42): 120 samples")
