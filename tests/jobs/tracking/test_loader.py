"""How many workers a rank has and whether it pins, over time."""

from dataclasses import replace

import pytest

from gpuwatch.jobs.tracking.loader import (
    GONE_SECONDS,
    PIN_SETTLE_SECONDS,
    TRAINING_SECONDS,
    WATCHED_SECONDS,
    WITHOUT_SECONDS,
    YOUNG_SECONDS,
    LoaderFacts,
    LoaderSigns,
    LoaderWatch,
    with_reported,
)

NONE = LoaderSigns(
    age_seconds=600.0,
    named_workers=0,
    guessed_workers=0,
    framework="torch",
    libraries_readable=True,
    threads=frozenset({"python"}),
)
FOUR = replace(NONE, named_workers=4, workers_age_seconds=300.0)
PINNING = frozenset({"python", "pt_data_pin"})


def test_no_pinning_thread_beside_old_enough_workers_is_off() -> None:
    """It begins a moment after the workers."""
    young = replace(FOUR, workers_age_seconds=PIN_SETTLE_SECONDS - 1)
    watch = LoaderWatch(0.0)
    assert watch.update(0.0, young).pinned is None
    assert watch.update(1.0, FOUR).pinned is False


def test_workers_away_between_epochs_are_unknown_not_none() -> None:
    """What was seen is said, pinning included; after minutes it becomes a guess of none."""
    watch = LoaderWatch(0.0)
    watch.update(0.0, replace(FOUR, threads=PINNING))
    facts = watch.update(12.0, NONE)
    assert facts.workers is None
    assert facts.workers_sign == "it had 4 until 12s ago"
    assert (facts.pinned, facts.pinned_sign) == (True, "a thread named pt_data_pin, until 12s ago")
    facts = watch.update(GONE_SECONDS, NONE)
    assert (facts.workers, facts.workers_guessed) == (0, True)
    assert facts.pinned is None


def test_workers_that_come_back_without_pinning_turn_it_off() -> None:
    """A second loader with other settings."""
    watch = LoaderWatch(0.0)
    watch.update(0.0, replace(FOUR, threads=PINNING))
    assert watch.update(3.0, replace(FOUR, workers_age_seconds=1.0)).pinned is True
    assert watch.update(10.0, replace(FOUR, workers_age_seconds=8.0)).pinned is False


def test_none_seen_is_a_guess_at_first_and_sure_after_a_while() -> None:
    """At the first look it could be between two epochs."""
    watch = LoaderWatch(0.0)
    facts = watch.update(0.0, NONE)
    assert (facts.workers, facts.workers_guessed, facts.workers_sign) == (0, True, "none there now")
    facts = watch.update(WATCHED_SECONDS, NONE)
    assert (facts.workers, facts.workers_guessed) == (0, False)
    assert facts.workers_sign == "none seen in 30s"
    assert facts.pinned is None
    assert "cannot be seen from outside" in facts.pinned_sign


YOUNG = replace(NONE, age_seconds=YOUNG_SECONDS - 1)
HIDDEN = replace(NONE, framework=None, libraries_readable=False)
LOOKS = {
    "named workers": (FOUR, 4, "4 processes named pt_data_worker", False, "no thread named"),
    # Before PyTorch 2.5 neither has a name.
    "unnamed workers are a guess": (
        replace(NONE, guessed_workers=1, workers_age_seconds=300.0),
        1, "1 process that it forked or spawned", None, "this PyTorch does not name its pinning",
    ),
    "a thread that pins": (
        replace(FOUR, threads=PINNING), 4, "4 processes", True, "a thread named pt_data_pin"
    ),
    "unread threads": (
        replace(FOUR, threads=None), 4, "4 processes", None, "names of its threads cannot be read"
    ),
    "a young process": (YOUNG, None, "it started only 29s ago", None, "beside loader workers"),
    # Threads of autograd show that batches have come.
    "a young process that trains": (
        replace(YOUNG, threads=frozenset({"pt_autograd_0"})), 0, "none there now", None, "outside"
    ),
    "another library": (
        replace(NONE, framework="jax"),
        None, "only the workers of PyTorch are known, and it runs jax", None, "beside",
    ),
    "no library": (
        replace(NONE, framework=None), None, "PyTorch is not loaded in it", None, "beside"
    ),
    "hidden libraries": (
        HIDDEN, None, "which libraries it has loaded cannot be read", None, "beside"
    ),
    "hidden libraries, and workers": (
        replace(HIDDEN, named_workers=2), 2, "2 processes", None, "just started"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LOOKS)
def test_one_look_says_what_it_can_with_the_reason(case: str) -> None:
    """Workers and their sign; pinned memory and its sign."""
    look, workers, sign, pinned, pinned_sign = LOOKS[case]
    facts = LoaderWatch(0.0).update(0.0, look)
    assert (facts.workers, facts.pinned) == (workers, pinned)
    assert facts.workers_guessed == (look.guessed_workers > 0 or workers == 0)
    assert facts.workers_sign.startswith(sign)
    assert pinned_sign in facts.pinned_sign


def test_kernels_without_workers_say_that_there_are_none() -> None:
    """Of a process too young to tell by its age alone; at first that is a guess."""
    young = replace(NONE, age_seconds=YOUNG_SECONDS / 3)
    watch = LoaderWatch(0.0)
    assert watch.update(0.0, replace(young, kernel_seconds=TRAINING_SECONDS - 1)).workers is None
    facts = watch.update(2.0, replace(young, kernel_seconds=TRAINING_SECONDS))
    assert (facts.workers, facts.workers_guessed) == (0, True)
    facts = watch.update(10.0, replace(young, kernel_seconds=WITHOUT_SECONDS))
    assert (facts.workers, facts.workers_guessed) == (0, False)


def test_what_is_seen_stands_before_what_is_reported() -> None:
    """The loader that is reported may be one of several; what is a guess gives way."""
    seen = LoaderFacts(4, "4 processes named pt_data_worker", False, True, "a thread")
    assert with_reported(seen, 8, False) == seen
    guessed = LoaderFacts(0, "none there now", True, None, "unknown")
    found = with_reported(guessed, 8, False)
    assert (found.workers, found.workers_guessed, found.pinned) == (8, False, False)
    assert with_reported(guessed, None, None) == guessed
