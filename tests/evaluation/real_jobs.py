"""Real PyTorch jobs on the virtual GPU that a practice job cannot be: reinforcement learning, a
server and its clients, threads that load. All but the kernels is real; where a job waits for those
it sleeps, and CUDA would spin.

    python -m tests.evaluation.real_jobs actors_too_slow
"""

import asyncio
import contextlib
import math
import queue
import random
import sys
import threading
import time
from collections.abc import Generator
from functools import partial
from typing import Any

import torch
from torch import multiprocessing

from gpuwatch.practice import Settings, end_with_parent
from tests.support.virtual_device import VirtualDevice

SIZE = 16
Request = tuple[list[float], "asyncio.Future[None]"]


class Model(VirtualDevice):
    """A small network, in the time of a large one; ``small``: in kernels that fill no GPU."""

    def __init__(self, *, learns: bool = True, small: bool = False) -> None:
        super().__init__()
        self.prepare(Settings(workers=0))
        self.set_small(small)
        self._net = torch.nn.Sequential(torch.nn.Linear(SIZE, 64), torch.nn.Linear(64, SIZE))
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=1e-3)
        if learns:
            threading.Thread(target=_autograd, daemon=True).start()

    def answer(self, inputs: torch.Tensor, milliseconds: float) -> torch.Tensor:
        with torch.no_grad():
            made: torch.Tensor = self._net(inputs)
        self.launch(None, milliseconds)
        self.synchronize()
        return made

    def learn(self, inputs: torch.Tensor, milliseconds: float) -> None:
        self._optimizer.zero_grad()
        self._net(inputs).square().mean().backward()
        self._optimizer.step()
        self.launch(None, milliseconds)
        self.step_done()


def _autograd() -> None:
    """Backward passes on a GPU have a thread of this name."""
    torch.multiprocessing._set_thread_name("pt_autograd_0")
    threading.Event().wait()


def _pole(milliseconds: float) -> Generator[list[float], float | None, None]:
    """A pole on a cart, in steps so fine that each act costs so much of a core; ends with the
    process that started this one."""
    end_with_parent()
    angle, speed, action = 0.1, 0.0, 0.0
    while True:
        until = time.thread_time() + milliseconds / 1000
        while time.thread_time() < until:
            speed += 1e-5 * (9.8 * math.sin(angle) + action)
            angle += 1e-5 * speed
        action = (yield [angle, speed] * (SIZE // 2)) or 0.0


def _answer(pipe: Any, milliseconds: float) -> None:
    pole = _pole(milliseconds)
    next(pole)
    while True:
        pipe.send(pole.send(pipe.recv()))


def _deliver(results: Any, milliseconds: float) -> None:
    """Acts by a policy of its own, sixteen at a time."""
    pole = _pole(milliseconds)
    while True:
        results.put([next(pole) for _ in range(16)])


def actors_in_step(milliseconds: float, count: int = 3) -> None:
    """PPO: all act, then the policy; after 64 acts it learns from them."""
    pipes = [multiprocessing.Pipe() for _ in range(count)]
    for _, far in pipes:
        multiprocessing.Process(target=_answer, args=(far, milliseconds)).start()
    model, states = Model(), torch.zeros(count, SIZE)
    while True:
        for _ in range(64):
            for (near, _), action in zip(pipes, model.answer(states, 4.0), strict=True):
                near.send(float(action[0]))
            states = torch.tensor([near.recv() for near, _ in pipes])
        for _ in range(8):
            model.learn(states, 50.0)


def actors_in_queue(milliseconds: float, step_ms: float, count: int = 3) -> None:
    """IMPALA: actors deliver at their own pace, and the learner takes what is there."""
    results: Any = multiprocessing.Queue(8)
    for _ in range(count):
        multiprocessing.Process(target=_deliver, args=(results, milliseconds)).start()
    model = Model()
    while True:
        model.learn(torch.tensor(results.get()), step_ms)


async def serve(port: str, *, largest: int = 8, milliseconds: float = 60, pieces: int = 1) -> None:
    """Answers what is there in one batch of ``largest`` at most, in a thread."""
    requests: asyncio.Queue[Request] = asyncio.Queue()
    model = Model(learns=False, small=pieces > 1)

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            answered = asyncio.get_running_loop().create_future()
            requests.put_nowait(([float(word) for word in line.split()], answered))
            await answered
            writer.write(b"done\n")

    def answer(inputs: torch.Tensor) -> None:
        for _ in range(pieces):
            inputs = model.answer(inputs, milliseconds / pieces)

    async with await asyncio.start_server(take, "127.0.0.1", int(port)):
        while True:
            batch = [await requests.get()]
            while len(batch) < largest and not requests.empty():
                batch.append(requests.get_nowait())
            await asyncio.to_thread(answer, torch.tensor([line for line, _ in batch]))
            for _, answered in batch:
                answered.set_result(None)


async def ask(port: str, people: str, rest_seconds: str) -> None:
    """Each asks, waits for the answer, and rests so long on average."""

    async def person() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        while True:
            writer.write(" ".join(str(random.random()) for _ in range(SIZE)).encode() + b"\n")
            await reader.readline()
            await asyncio.sleep(float(rest_seconds) * random.expovariate(1.0))

    while True:
        with contextlib.suppress(OSError):
            await asyncio.gather(*[person() for _ in range(int(people))])
        await asyncio.sleep(0.5)


def threads_that_load(milliseconds: float = 150.0) -> None:
    """A loader of its own, of two threads."""
    ready: queue.Queue[torch.Tensor] = queue.Queue(4)

    def load() -> None:
        while True:
            sample, until = torch.randn(1 << 18), time.thread_time() + milliseconds / 1000
            while time.thread_time() < until:
                sample.sort()
            ready.put(sample[:SIZE])

    for _ in range(2):
        threading.Thread(target=load, daemon=True).start()
    model = Model()
    while True:
        model.learn(ready.get(), 20.0)


JOBS: dict[str, Any] = {
    "actors_too_slow": partial(actors_in_step, 6.0),
    "actors_too_slow_queue": partial(actors_in_queue, 6.0, 50.0),
    "learner_bound": partial(actors_in_queue, 2.0, 150.0),
    "server_saturated": serve,
    "server_waiting": serve,
    "server_batch_of_one": partial(serve, largest=1, milliseconds=120, pieces=20),
    "threads_that_load": threads_that_load,
    "client": ask,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    work = JOBS[sys.argv[1]](*sys.argv[2:])
    if work is not None:
        asyncio.run(work)
