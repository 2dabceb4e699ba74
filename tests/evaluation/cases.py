"""The generator: cases by seed. Each knob draws a machine on which it is turned; what it costs is
computed from the job's own physics (``case.judge``), and where it costs nothing the label is
``healthy``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from gpuwatch.sources.simulated.plans import USERS, JobPlan, Setup
from gpuwatch.sources.simulated.training import Training
from tests.evaluation.case import Case, Subject
from tests.evaluation.jobs import cards
from tests.evaluation.jobs import knobs_loading as loading
from tests.evaluation.jobs import knobs_machine as machine
from tests.evaluation.jobs import knobs_training as training
from tests.evaluation.jobs.draw import Draw
from tests.evaluation.jobs.machine import Reporting, Rig, Sensors
from tests.evaluation.jobs.scene import Bench, Scene, from_log

Knob = Callable[[Bench], Scene]


KNOBS: Mapping[str, Knob] = {
    knob.__name__: knob
    for knob in (
        loading.healthy, loading.loader_cpu_bound, training.checkpoint_pauses,
        loading.loader_in_main_process, training.healthy_at_limit, loading.loader_io_bound,
        training.python_bound, training.collective_wait, loading.memory_not_pinned,
        training.validation_pauses, loading.too_many_workers, loading.cpu_quota,
        training.sync_every_step, training.straggler, training.busy_without_work,
        training.batch_too_small, machine.memory_nearly_full, machine.memory_growing,
        machine.thermal_throttle, machine.power_throttle, machine.pcie_degraded,
        machine.hardware_errors, machine.gpu_lost, machine.other_tenant, machine.quiet_neighbour,
        loading.host_memory_growing, loading.shm_full, machine.idle_holding_memory,
        machine.orphaned_workers, training.starting, loading.just_started, training.two_causes
    )
}  # fmt: skip


WEIGHTS = {"healthy": 5, "loader_cpu_bound": 2, "checkpoint_pauses": 2, "two_causes": 2}
"""How often a knob comes in a round; the others once."""


_ONLY_LOG = frozenset({"loader_cpu_bound", "loader_in_main_process", "loader_io_bound"})
"""Of these a log tells the pattern."""


REPORTING_SHARE = 0.3
"""Of the jobs use ``gpuwatch.torch``."""


def generate(
    seed: int, count: int, *, held_out: bool, reporting: float = REPORTING_SHARE
) -> Iterator[Case]:
    """``count`` cases, every knob in turn; the same for the same arguments. In ``reporting`` of
    them the job reports its own loop; the rest of a case does not depend on it."""
    rounds = [name for name in KNOBS for _ in range(WEIGHTS.get(name, 1))]
    for number in range(count):
        knob = rounds[number % len(rounds)]
        yield one(knob, f"{seed}/{number}", held_out=held_out, reporting=reporting)


def one(knob: str, seed: str, *, held_out: bool, reporting: float = REPORTING_SHARE) -> Case:
    """The case of this knob and seed."""
    draw = Draw(f"{knob}/{seed}", held_out=held_out)
    card = draw.any(cards.HELD_OUT if held_out else cards.TUNING)
    gpus = 1 if card.unified else draw.any((1, 1, 1, 1, 1, 2, 4, 8))
    bench = Bench(draw, card, gpus)
    scene = KNOBS[knob](bench)
    log = draw.chance(0.3) and (scene.log_label is not None or knob in _ONLY_LOG)
    # Logs of cards that share the host's memory have neither memory nor power limit.
    log = log and not card.unified
    sensors = _sensors(draw, scene, log=log)
    label = scene.label
    if log:
        label = scene.log_label or from_log(label, sensors.interval, scene.work)
    split = "held-out" if held_out else "tuning"
    subject = Subject(
        gpus=tuple(range(bench.gpus)),
        label=label[0],
        accepted=label[1],
        from_seconds=scene.from_seconds,
    )
    rig = _rig(scene, bench, sensors, seed=draw.rng.randrange(1 << 30))
    if not log:
        rig = replace(rig, sensors=replace(sensors, reporting=_reporting(draw, reporting)))
    return Case(name=f"{split}/{knob}/{seed}", kind=knob, subjects=(subject,), rig=rig, log=log)


def _reporting(draw: Draw, share: float) -> Reporting | None:
    """Drawn last, so that nothing else of the case depends on it."""
    made = Reporting(copies=draw.chance(0.5), marks=draw.chance(0.7))
    return made if draw.line(0.0, 1.0) < share else None


_OF_GPUS = ("energy_joules", "throttle_durations", "pcie_rx_bytes_per_second")
_OF_MEMBERS = ("disk_wait_percent", "run_queue_wait_percent", "memory_proportional_bytes")
_PRESSURES = tuple(
    f"pressure_{what}_percent"
    for what in ("cpu_some", "io_some", "io_full", "memory_some", "memory_full")
)


def _sensors(draw: Draw, scene: Scene, *, log: bool) -> Sensors:
    interval = scene.interval or draw.any((0.5, 1.0, 1.0, 1.0, 1.0, 2.0))
    if scene.seconds <= 100.0 and draw.chance(0.08):
        interval = draw.any((0.1, 0.2))
    attached = draw.chance(0.5)
    gpu = tuple(name for name in _OF_GPUS if draw.chance(0.1))
    members = tuple(name for name in _OF_MEMBERS if draw.chance(0.12))
    return Sensors(
        interval=interval, average_ticks=draw.any((1, 1, 2, 3, 6)),
        fine=not log and draw.chance(0.8), attached=attached,
        stacks=attached and draw.chance(0.4), log=log, missing_gpu=gpu, missing_members=members,
        missing_host=_PRESSURES if draw.chance(0.2) else (), power_noise=draw.line(0.002, 0.03),
        gap_every=draw.any((None, None, None, 60.0)), world_size_factor=scene.world_size_factor,
        unknown_roles=draw.chance(0.1)
    )  # fmt: skip


def _rig(scene: Scene, bench: Bench, sensors: Sensors, *, seed: int) -> Rig:
    work, gpus = scene.work, tuple(range(bench.gpus))
    trains = scene.plan is None or scene.plan.training is not None or not _holds(scene.plan)
    costs = Training(
        workers=work.workers, prefetch=work.prefetch, worker_speed=work.worker_speed,
        pinned=work.pinned, batch_wait_seconds=0.1 if work.disk_wait else 0.0
    )  # fmt: skip
    base = scene.plan or JobPlan(
        gpus=(), memory_bytes=bench.card.memory_bytes * bench.draw.line(0.2, 0.8)
    )
    plan = replace(base, gpus=gpus, training=costs if trains else None)
    plan = replace(plan, user=USERS[seed % 3])
    setup = Setup(
        slots=scene.slots or bench.slots, jobs=(plan, *scene.beside), cores=scene.cores,
        quota_cores=scene.quota, shm_bytes=scene.shm_bytes,
        memory_bytes=bench.card.memory_bytes if bench.card.unified else scene.memory_bytes
    )  # fmt: skip
    works = (work,) if trains else ()
    return Rig(
        setup=setup, works=works, seconds=scene.seconds, seed=seed, sensors=sensors,
        filled=scene.filled
    )  # fmt: skip


def _holds(plan: JobPlan) -> bool:
    """It only holds memory."""
    return plan.orphaned or "ipykernel" in plan.command
