"""Jobs whose GPU waits for requests, or for environments."""

from typing import Any

from gpuwatch.core.model import JobRank
from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis import windows as w
from tests.diagnosis.rules.cases import Cases

IDLES = (w.gpu(busy=w.swinging(0.4)),)
WITHOUT = JobRank(pid=w.PID, gpu_uuids=("GPU-0",), loader_workers=0)
UNREAD: dict[str, Any] = {
    "main_thread_when_idle_percent": None, "main_thread_percent": None,
    "ranks": (w.rank(main_thread_percent=None),),
}  # fmt: skip
VLLM = "it is vLLM and listens on TCP port 8000"
MUJOCO = "MuJoCo is loaded in the processes it started"


def other_job(model: dict[str, Any], gpus: Any = IDLES, **facts: Any) -> Window:
    """Without loader workers, its main thread at rest."""
    known: dict[str, Any] = {
        "model": {"ranks": (WITHOUT,), **model}, "workers": None, "main_thread_percent": 20.0,
        "main_thread_when_idle_percent": 10.0, "ranks": (w.rank(loader_workers=0, workers=None),),
    }  # fmt: skip
    return w.window(gpus=gpus, job=w.job(**(known | facts)))


def serving(sign: str | None = VLLM, **facts: Any) -> Window:
    return other_job({"serves": sign}, **facts)


def acting(sign: str | None = MUJOCO, cpu: float = 90.0, **facts: Any) -> Window:
    return other_job({"simulates": sign}, own_workers=w.workers(12, cpu_percent=cpu), **facts)


REQUESTS = Cases("waiting_for_requests", {
    "a server with few requests": (
        serving(),
        {"severity": "info", "lost_share": None, "summary": "vLLM ... TCP port 8000",
         "advice.0.action": "Leave it as it is", "explains": {"oscillation"}},
    ),
    "loaded, and nobody asks for anything": (
        other_job({"serves": VLLM}, (w.gpu(busy=w.steady(0.0)),), read_bytes_per_second=0.0),
        {"severity": "info", "summary": "for want of requests"},
    ),
    "its CPU is not read": (
        serving(**UNREAD), {"missing": ("the main thread's CPU",)},
    ),
}, {
    "training": (other_job({}), "nothing shows"),
    "it listens and still loads what it serves": (
        other_job({"serves": VLLM}, (w.gpu(busy=w.steady(0.0)),), read_bytes_per_second=2e8),
        "still loading",
    ),
    "its GPU memory fills, and no kernel has run": (
        other_job({"serves": VLLM}, (w.gpu(busy=w.steady(0.0), memory_used_bytes=20.0 * w.GIB,
                                           memory_highest_bytes=40.0 * w.GIB),),
                  read_bytes_per_second=0.0),
        "still loading",
    ),
    "it prepares what it was asked for": (serving(main_thread_when_idle_percent=95.0), "works"),
}, {})  # fmt: skip

ACTORS = Cases("actors_cpu_bound", {
    "environments at their limit": (
        acting(),
        {"summary": "12 processes of its own at 91% of a core each (MuJoCo is loaded in the",
         "explains": {"oscillation"}, "advice.0.action": "gymnasium.vector"},
    ),
    "processes of which nothing is known: one of these": (
        acting(None),
        {"summary": "reinforcement-learning environments, or workers that prepare its data",
         "advice.0.action": "First see what they do", "missing": ("what these processes do",),
         "weaker": "environments at their limit"},
    ),
    "they wait for a core": (
        other_job({}, own_workers=w.workers(3, cpu_percent=6.0, run_queue_wait_percent=75.0)),
        {"summary": "81% of a core each ... which themselves mostly wait for a core",
         "advice.0.action": "Give them more cores"},
    ),
    "stepped by the training process": (
        other_job({"simulates": "MuJoCo is loaded in it"}, main_thread_when_idle_percent=96.0),
        {"summary": "busy stepping environments (MuJoCo"},
    ),
}, {
    "no such processes": (other_job({}), "no worker processes of its own"),
    "they rest": (acting(None, cpu=3.0), "are busy"),
}, {
    "its main thread is not read": (acting(**UNREAD), "main thread"),
})  # fmt: skip
