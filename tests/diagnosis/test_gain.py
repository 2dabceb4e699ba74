"""The gain of a cure, held against what was measured where one knob was turned."""

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.diagnosis.catalogue import find
from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.finding import Advice, Finding, Gain, as_causes
from gpuwatch.diagnosis.gain import lost_watts, with_gains
from gpuwatch.diagnosis.rule import Firing, Rule
from gpuwatch.diagnosis.rule_state import RuleState, steadied
from tests.diagnosis import engines as e
from tests.diagnosis import windows as w

CLOSE = 0.25


def small(cores: float, used: float, main: float = 5.0, **facts: Any) -> Window:
    """A job alone on a machine of so many cores, of which it uses so much."""
    job = w.job(
        cpu_cores=used,
        main_thread_percent=main,
        model={"affinity_cores": int(cores), "usable_cores": cores},
        **facts,
    )
    percent = min(100.0, 100.0 * used / cores)
    return w.window(job=job, host=w.host(core_count=int(cores), cpu_percent=percent))


def turned(rule: str, window: Window, lost: float, setting: str, now: str, then: str) -> Firing:
    change = Advice("Change it.", setting=setting, present=now, wanted=then)
    return with_gains(window, find(rule), e.firing(lost_share=lost, advice=(change,)))


def estimate(window: Window, rule: str, now: str, then: str) -> Gain | None:
    advice = turned(rule, window, 0.6, "num_workers", now, then).advice
    assert advice is not None
    return advice[0].gain


def workers_to(rule: str, window: Window, lost: float, now: int, then: int) -> Gain:
    gain = turned(rule, window, lost, "num_workers", str(now), str(then)).gain
    assert gain is not None
    return gain


def busy_workers(count: float, percent: float = 97.0, **facts: Any) -> Any:
    return w.workers(count, cpu_percent=percent, **facts)


CROWDED = small(2, 1.95, workers=busy_workers(12, 16.0, run_queue_wait_percent=84.0))
EIGHT = small(8, 4.5, 10.0, workers=busy_workers(4))
ASLEEP = small(2, 0.2, workers=busy_workers(2, 4.0))
FETCHING = small(
    2, 0.3, workers=busy_workers(2, 9.0, awaits_network_share=0.85),
    network_receive_bytes_per_second=8e6,
)  # fmt: skip
CHILDREN = small(8, 2.1, workers=busy_workers(2, 100.0))
ALONE = small(2, 1.0, workers=busy_workers(1, 96.0))
ROOMY = small(64, 2.2, workers=busy_workers(2))
NONE = small(2, 1.0, 98.0, workers=None)


@pytest.mark.parametrize(
    ("rule", "window", "lost", "change", "measured", "limit"),
    [
        ("loader_cpu_bound", EIGHT, 0.643, (4, 16), 1.75, "8 cores"),
        ("loader_io_bound", ASLEEP, 0.8, (2, 4), 1.96, "4 workers"),
        ("loader_io_bound", FETCHING, 0.8, (2, 4), 2.09, "4 workers"),
        ("loader_cpu_bound", CHILDREN, 0.7, (2, 4), 1.98, "4 workers"),
        ("loader_cpu_bound", ALONE, 0.75, (1, 2), 1.99, "2 cores"),
        ("too_many_workers", CROWDED, 0.7, (12, 2), 1.04, "2 cores"),
        ("loader_in_main_process", NONE, 0.9, (0, 1), 0.84, "1 worker"),
        ("loader_in_main_process", NONE, 0.9, (0, 2), 1.66, "2 cores"),
        ("loader_in_main_process", NONE, 0.9, (0, 2), 1.27, "2 cores"),
        ("loader_cpu_bound", ROOMY, 0.25, (2, 8), 1.31, "the GPU"),
    ],
)  # fmt: skip
def test_other_numbers_of_workers(
    rule: str, window: Window, lost: float, change: tuple[int, int], measured: float, limit: str
) -> None:
    """The gain is within a quarter of what was measured, with the limit that stopped it."""
    gain = workers_to(rule, window, lost, *change)
    assert gain.factor == pytest.approx(measured, rel=CLOSE)
    assert gain.low <= gain.factor <= gain.high
    assert gain.limited_by == limit


def test_a_larger_quota() -> None:
    """0.8 to 2 cores were 2.3 times as fast; one that a worker could not use gives no more."""
    held = small(8, 0.78, 3.0, workers=busy_workers(2, 37.0, run_queue_wait_percent=60.0))
    gain = turned("cpu_quota", held, 0.9, "cpu quota", "0.8", "2").gain
    assert gain is not None
    assert gain.factor == pytest.approx(2.3, rel=CLOSE)
    much = turned("cpu_quota", held, 0.9, "cpu quota", "0.8", "8").gain
    assert much is not None
    assert (much.factor, much.limited_by) == (pytest.approx(2.7, rel=0.05), "2 workers")


def test_others_on_the_machine_leave_fewer_cores() -> None:
    """Six of eight cores are taken: one worker more gets what is left of the others' two."""
    job = w.job(cpu_cores=1.0, main_thread_percent=4.0, workers=busy_workers(1))
    crowded = w.window(job=job, host=w.host(core_count=8, cpu_percent=87.5))
    gain = workers_to("loader_cpu_bound", crowded, 0.9, 1, 8)
    assert (gain.factor, gain.limited_by) == (2.0, "the 2 cores that others leave")


def test_a_disk_allows_no_estimate() -> None:
    """What a disk could deliver to more workers has not been seen."""
    reads = small(8, 0.5, workers=busy_workers(2, 10.0, disk_wait_percent=80.0))
    assert estimate(reads, "loader_io_bound", "2", "4") is None


def test_a_fast_network_allows_no_estimate() -> None:
    """Twice of what is received may be more than the network carries."""
    rate = small(
        8, 0.5, workers=busy_workers(2, 10.0, awaits_network_share=0.8),
        network_receive_bytes_per_second=90e6,
    )  # fmt: skip
    assert estimate(rate, "loader_io_bound", "2", "4") is None


def test_cores_that_others_take_now_may_come_free() -> None:
    """What a core more would give is then not known, and no reason to say nothing."""
    taken = replace(NONE, host=replace(NONE.host, cpu_percent=100.0))
    gain = workers_to("loader_in_main_process", taken, 0.9, 0, 2)
    assert gain.factor is None
    assert gain.high == pytest.approx(10.0)


@pytest.mark.parametrize(
    "window",
    [
        small(2, 1.0, workers=None),
        small(2, 1.0, workers=w.workers(1, cpu_percent=None)),
        replace(small(2, 1.0), job=None),
    ],
)
def test_without_readings_there_is_no_estimate(window: Window) -> None:
    """Without the workers' CPU no number of them is worth anything that is known."""
    assert estimate(window, "loader_cpu_bound", "1", "2") is None


FROM_DISK = small(
    2, 0.3, 20.0, workers=None, ranks=(w.rank(loader_workers=0, disk_wait_percent=75.0),)
)
UNREAD = small(2, 1.0, workers=None, ranks=())


@pytest.mark.parametrize(
    ("rule", "window", "setting", "change"),
    [
        ("loader_in_main_process", FROM_DISK, "num_workers", ("0", "4")),
        (
            "loader_in_main_process",
            replace(UNREAD, job=w.job(main_thread_percent=None, workers=None)),
            "num_workers",
            ("0", "4"),
        ),
        ("cpu_quota", replace(UNREAD, job=w.job(cpu_cores=None)), "cpu quota", ("1", "4")),
    ],
)
def test_what_is_not_known_of_its_cpu_allows_no_estimate(
    rule: str, window: Window, setting: str, change: tuple[str, str]
) -> None:
    """A main process that waits for a disk, or of which nothing was read."""
    advice = turned(rule, window, 0.6, setting, *change).advice
    assert advice is not None
    assert advice[0].gain is None


def test_where_cores_are_not_known_the_number_of_workers_limits() -> None:
    """The most that more workers can give is then all that is said."""
    unread = small(2, 1.0, workers=busy_workers(1))
    unread = replace(
        unread, job=w.job(workers=busy_workers(1), cpu_cores=None, main_thread_percent=5.0)
    )
    assert workers_to("loader_cpu_bound", unread, 0.8, 1, 2).limited_by == "2 workers"


def test_words_for_a_number_allow_no_estimate() -> None:
    """Advice of another version may be in words."""
    assert estimate(ALONE, "loader_cpu_bound", "1", "a few") is None


def of_rule(rule: str, window: Window, lost: float, **fields: Any) -> Gain | None:
    return with_gains(window, find(rule), e.firing(lost_share=lost, **fields)).gain


def test_a_wait_that_goes_gives_back_what_was_lost() -> None:
    """Saving in a thread: a quarter of the time."""
    gain = of_rule("checkpoint_pauses", w.window(), 0.25)
    assert gain is not None
    assert (gain.factor, gain.limited_by) == (1.33, "the GPU")


def test_the_main_thread_is_the_next_limit() -> None:
    """It computes for 80% of the time: without its calls it goes 1.25 times as fast at most."""
    gain = of_rule("network_calls", small(8, 0.8, 80.0), 0.5)
    assert gain is not None
    assert (gain.factor, gain.limited_by) == (1.25, "the main thread")


def test_of_some_cures_only_the_most_is_known() -> None:
    """A batch size, or compiling, gives up to what the GPU idles."""
    gain = of_rule("python_bound", small(8, 1.0, 99.0), 0.5)
    assert gain == Gain(factor=None, low=1.0, high=2.0, limited_by="the GPU")
    found = Finding(rule="", severity="", confidence=0.9, summary="Slow.", gain=gain)
    assert found.headline == "Slow."
    assert found.gain_in_words == "not known: at most 2.0x as fast, limited by the GPU"


def test_the_slowest_rank_is_a_limit() -> None:
    """One of two GPUs is starved; the other works 80% of the time, and spins for the rest."""
    ranks = (w.rank(0), w.rank(1))
    gpus = (w.gpu(0, busy=w.steady(40.0)), w.gpu(1, busy=w.steady(98.0), spins_share=0.18))
    two = w.window(gpus=gpus, job=w.job(ranks=ranks, workers=busy_workers(2)))
    gain = of_rule("oscillation", two, 0.6, gpus=("GPU-0",), advice=(Advice("See."),))
    assert gain == Gain(factor=None, low=1.0, high=1.25, limited_by="the slowest rank")


def test_a_higher_clock_needs_power() -> None:
    """A hot card at 600 of 700 W gains 8% before its power cap, however much slower it is."""
    hot = w.window(gpus=(w.gpu(power_busy_watts=600.0, power_limit_watts=700.0),))
    gain = of_rule("thermal_throttle", hot, 0.4)
    assert gain is not None
    assert (gain.high, gain.limited_by) == (1.08, "the power cap")


def test_the_best_cure_counts() -> None:
    """Fewer workers gain nothing where the cores are full; cheaper transforms may."""
    fewer = Advice("Lower it.", setting="num_workers", present="12", wanted="2")
    both = with_gains(
        CROWDED,
        find("too_many_workers"),
        e.firing(lost_share=0.5, advice=(fewer, Advice("Make the transforms cheaper."))),
    )
    assert both.gain == Gain(factor=None, low=1.0, high=2.0, limited_by="the GPU")
    assert both.advice is not None
    assert both.advice[0].gain is not None
    assert both.advice[0].gain.factor == pytest.approx(1.04, rel=0.1)
    assert both.advice[1].gain is None


@pytest.mark.parametrize("rule", ["hardware_errors", "idle_holding_memory", "batch_too_small"])
def test_what_makes_no_job_faster_has_no_gain(rule: str) -> None:
    """Memory that is held, errors, and work that is small."""
    assert of_rule(rule, w.window(), 0.9, advice=(Advice("Do it."),)) is None


def test_power_of_the_lost_time() -> None:
    """Mean 340 W, 600 W while busy, half of the time: idle at 80 W."""
    half = w.window(
        gpus=(w.gpu(busy=w.steady(50.0), power_mean_watts=340.0, power_busy_watts=600.0),)
    )
    idle = e.firing(lost_share=0.5)
    assert lost_watts(half, idle, while_busy=False) == pytest.approx(80.0)
    assert lost_watts(half, idle, while_busy=True) == pytest.approx(340.0)
    assert lost_watts(half, e.firing(), while_busy=False) is None


# -- how grave it is -------------------------------------------------------------------------------

CURED = Rule(title="a fault", name="fault", gives_back="all", cure=(Advice("Do it."),))


def held(share: float, **fields: Any) -> list[Finding]:
    """What is said after half a minute of it."""
    window = w.window(gpus=(w.gpu(busy=w.steady(100.0 - 100.0 * share)),))
    rule = replace(CURED, check=lambda _: e.firing(lost_share=share, **fields))
    return list(e.play(e.Scripted([rule], window), range(30))[-1].findings)


@pytest.mark.parametrize(
    ("share", "severity"), [(0.05, None), (0.08, None), (0.11, "info"), (0.15, "info"),
                            (0.19, "warning"), (0.5, "warning")]
)  # fmt: skip
def test_severity_follows_the_gain(share: float, severity: str | None) -> None:
    """Below 10% nothing is said, up to 20% is information, more is a warning."""
    found = held(share)
    assert [one.severity for one in found] == ([] if severity is None else [severity])


def test_harm_keeps_its_severity() -> None:
    """An error is one however little time it costs, and so is what has no gain."""
    rule = replace(CURED, gives_back=None, check=lambda _: e.firing(lost_share=0.05))
    (found,) = e.play(e.Scripted([rule]), range(30))[-1].findings
    assert (found.severity, found.gain) == ("warning", None)
    assert [one.severity for one in held(0.15, severity="error")] == ["error"]


def test_what_harms_is_said_for_any_gain() -> None:
    """Heat that costs 5% is a warning all the same."""
    rule = replace(CURED, harms=True, check=lambda _: e.firing(lost_share=0.05))
    (found,) = e.play(e.Scripted([rule]), range(30))[-1].findings
    assert found.severity == "warning"


def test_information_of_a_rule_stays_information() -> None:
    """What the rule itself only tells is no warning, however much it costs."""
    assert [one.severity for one in held(0.5, severity="info")] == ["info"]


def test_around_a_limit_severity_does_not_flap() -> None:
    """A gain that sways by 1% changes nothing."""
    state, said = RuleState(CURED), []
    for second in range(200):
        times = 1.2 + (0.01 if second % 2 else -0.01)
        gain = Gain(factor=times, low=1.0, high=1.5, limited_by="the GPU")
        state.update(e.firing(lost_share=0.17, gain=gain), 1.0, second)
        said.append(state.severity)
    assert len(set(said[5:])) == 1


def test_around_the_least_nothing_comes_and_goes() -> None:
    """What is said stays while its gain sways around 10%."""
    state, said = RuleState(CURED), []
    for second in range(200):
        times = 1.15 if second < 30 else 1.1 + (0.01 if second % 40 < 20 else -0.01)
        gain = Gain(factor=times, low=1.0, high=1.5, limited_by="the GPU")
        state.update(e.firing(lost_share=0.1, gain=gain), 1.0, second)
        said.append(state.raised)
    assert all(said[20:])


# -- in words --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "low", "high", "said"),
    [
        (1.8, 1.5, 2.0, "about 1.8x as fast (1.5 to 2.0), limited by the GPU"),
        (3.28, 2.9, 3.3, "about 3.3x as fast (at least 2.9), limited by the GPU"),
        (3.5, 3.5, 3.9, "about 3.5x as fast (at most 3.9), limited by the GPU"),
        (1.6, 1.58, 1.62, "about 1.6x as fast, limited by the GPU"),
        (None, 1.0, 2.0, "at most 2.0x as fast, limited by the GPU"),
    ],
)
def test_an_estimate_at_an_end_of_its_range_is_said_with_the_other(
    factor: float | None, low: float, high: float, said: str
) -> None:
    """It is the number that other pages have; repeated in brackets it reads like a mistake."""
    assert Gain(factor=factor, low=low, high=high, limited_by="the GPU").in_full == said


def test_the_verdict_names_the_change_and_its_limit() -> None:
    """The sentence ends with what to expect of which change."""
    gain = Gain(factor=1.78, low=1.5, high=1.96, limited_by="8 cores")
    change = Advice("Raise it.", setting="num_workers", present="2", wanted="8", gain=gain)
    found = Finding(
        rule="loader_cpu_bound", severity="warning", confidence=0.9, summary="GPU 0 waits.",
        advice=(change,), gain=gain
    )  # fmt: skip
    promise = "num_workers 2 -> 8: about 1.8x as fast, limited by 8 cores"
    assert found.headline == f"GPU 0 waits; {promise}"
    no_knob = replace(found, advice=(Advice("Save in a thread.", gain=gain),))
    assert no_knob.promise == "a fix would make the job about 1.8x as fast, limited by 8 cores"
    assert replace(found, gain=None).headline == "GPU 0 waits."


def test_one_finding_of_several_jobs_has_their_range() -> None:
    """The middle of their gains, with the widest range, unknown if one of them is; as grave as the
    gravest."""

    def one(pid: int, gain: Gain | None) -> Finding:
        return Finding(
            rule="loader_cpu_bound", severity="warning", confidence=0.9, summary="GPU 0 waits.",
            job=(pid, 1.0), gain=gain, gpus=(f"GPU-{pid}",)
        )  # fmt: skip

    gains = [Gain(factor=n, low=n - 0.1, high=n + 0.1, limited_by="2 cores") for n in (1.5, 2, 3)]
    found = [one(number, gain) for number, gain in enumerate(gains)]
    (whole,) = as_causes(found, lambda _: "GPUs")
    assert whole.gain == Gain(factor=2, low=1.4, high=3.1, limited_by="2 cores", of_jobs=(1.5, 3))
    assert whole.gain.brief == "about 1.5-3.0x as fast"
    alike = replace(whole.gain, of_jobs=(2.0, 2.05))
    assert alike.brief == "about 2.0x as fast"
    mild = replace(one(4, None), severity="info")
    (open_,) = as_causes([mild, *found], lambda _: "GPUs")
    assert (open_.gain, open_.severity) == (None, "warning")


def by_turns(count: float, cpu: float, queue: float, used: float) -> Window:
    """Workers that wait 120 ms for a batch of pictures, then decode it, on two cores."""
    workers = w.workers(count, cpu_percent=cpu, run_queue_wait_percent=queue, at_work_share=0.9)
    return small(2, used, 2.0, workers=workers)


@pytest.mark.parametrize(
    ("window", "now", "then", "measured"),
    [
        (by_turns(1, 55.8, 1.6, 0.57), 1, 2, 1.85),
        (by_turns(1, 55.8, 1.6, 0.57), 1, 3, 2.27),
        (by_turns(1, 55.8, 1.6, 0.57), 1, 6, 2.84),
        (by_turns(2, 47.4, 11.3, 0.97), 2, 3, 1.23),
        (by_turns(2, 47.4, 11.3, 0.97), 2, 6, 1.54),
        (by_turns(3, 40.6, 25.4, 1.24), 3, 6, 1.25),
    ],
)
def test_workers_that_wait_and_compute_in_turns_fill_cores_by_and_by(
    window: Window, now: int, then: int, measured: float
) -> None:
    """Each figure was measured; close to both limits, of workers and of cores, neither is
    reached."""
    gain = workers_to("loader_io_bound", window, 0.9, now, then)
    assert gain.factor == pytest.approx(measured, rel=CLOSE)


@pytest.mark.parametrize(("high", "wanted"), [(3.4, "4"), (2.9, "3")])
def test_a_limit_is_of_the_number_that_is_advised(high: float, wanted: str) -> None:
    """A number that has hardly moved is kept with its own gain; one that promises more than can be
    had now goes, with its limit."""

    def workers(count: str, factor: float, high: float) -> Advice:
        gain = Gain(factor=factor, low=2.0, high=high, limited_by=f"{count} workers")
        raised = "Raise num_workers."
        return Advice(raised, setting="num_workers", present="0", wanted=count, gain=gain)

    [said] = steadied([workers("3", 2.8, high)], [workers("4", 3.0, 3.4)])
    assert said.wanted == wanted
    assert said.gain is not None
    assert said.gain.limited_by == f"{wanted} workers"
