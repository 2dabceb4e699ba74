"""A real PyTorch job on the CPU: it does what each line of its input asks for, a name with options.

Run as a file of its own, with a folder to write to; a test drives it by ``TrainingJob``.
"""

import json
import os
import queue
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
folder = sys.argv[1]
asked = queue.SimpleQueue()
begun = True


def answer(value):
    # In one piece: the ranks of torchrun share their output, unbuffered.
    os.write(1, json.dumps(value).encode() + b"\n")


class Samples(Dataset):
    def __init__(self, transform="sleep", seconds=0.005, at_once=0):
        self.transform, self.seconds, self.at_once = transform, seconds, at_once
        self.gate = os.pipe() if transform == "pipe" else ()

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        if self.transform == "busy":
            until = time.process_time() + 0.02
            while time.process_time() < until:
                pass
        elif self.transform == "pipe":
            # Another process would write to it; the first are there already.
            if index >= self.at_once:
                os.read(self.gate[0], 1)
        elif self.transform == "disk":
            with open(f"{folder}/{os.getpid()}", "wb") as file:  # noqa: PTH123
                file.write(os.urandom(1 << 16))
                file.flush()
                os.fsync(file.fileno())
        else:
            return augment(torch.zeros(8), self.seconds)
        return torch.zeros(8)


def augment(image, seconds):
    time.sleep(seconds)
    return image + 1


def forget_name(worker):
    # As before PyTorch 2.5, which gave workers no name.
    Path("/proc/self/comm").write_text("python")


class Training:
    """What is done once, and then answered."""

    def __init__(self):
        self.epoch = self.stop_pinning = None
        self.gate = ()

    def load(self, workers, context="fork", transform="sleep", unnamed=False):
        self.end_epoch()
        samples = Samples(transform, at_once=2 * workers)
        self.gate = samples.gate
        loader = DataLoader(
            samples,
            batch_size=2,
            num_workers=workers,
            multiprocessing_context=context if workers else None,
            worker_init_fn=forget_name if unnamed else None,
        )
        self.epoch = iter(loader)
        for _ in range(max(1, workers)):
            next(self.epoch)
        return [worker.pid for worker in getattr(self.epoch, "_workers", ())]

    def end_epoch(self):
        for end in self.gate[1:]:
            # Those that were asked for, so that the workers can end.
            os.write(end, bytes(1 << 10))
        if hasattr(self.epoch, "_shutdown_workers"):
            self.epoch._shutdown_workers()
        for end in self.gate:
            os.close(end)
        self.epoch, self.gate = None, ()

    def work(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            next(self.epoch)

    def pin(self, on):
        if self.stop_pinning is not None:
            self.stop_pinning.set()
            self.pinning.join()
            self.stop_pinning = None
        if on:
            self.stop_pinning, named = threading.Event(), threading.Event()
            self.pinning = threading.Thread(target=self.pin_loop, args=(named,), daemon=True)
            self.pinning.start()
            named.wait()

    def pin_loop(self, named):
        torch.multiprocessing._set_thread_name("pt_data_pin")
        named.set()
        self.stop_pinning.wait()


# What is done until something else is asked for; answered once it has really begun.


def goes_on():
    global begun  # noqa: PLW0603
    if not begun:
        begun = True
        answer(None)
    return asked.empty()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(512, 512), nn.Linear(512, 10)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def train_one_epoch(loader):
    for _batch in loader:
        if not goes_on():
            return


def loading():
    train_one_epoch(DataLoader(Samples(seconds=0.02), batch_size=4, num_workers=0))


def starving():
    train_one_epoch(DataLoader(Samples(seconds=0.05), batch_size=4, num_workers=1))


def saving():
    state = {"weights": torch.zeros(2_000_000)}
    while goes_on():
        torch.save(state, Path(folder) / "checkpoint.pt")


def evaluate():
    model, inputs = Net(), torch.zeros(2000, 512)
    with torch.no_grad():
        while goes_on():
            model(inputs)


def training():
    model, inputs = Net(), torch.zeros(2000, 512)
    while goes_on():
        loss = model(inputs).sum()
        loss.backward()


def logging():
    wait = time.sleep
    while goes_on():
        # Stands for a loss on a device: only the text of the line says what is waited for.
        wait(0.05) or torch.ones(1).sum().item()


PHASES = {one.__name__: one for one in (loading, starving, saving, evaluate, training, logging)}


def listen():
    # Not from sys.stdin: a forked worker would wait for ever for the lock this thread holds.
    rest = b""
    while came := os.read(0, 4096):
        *lines, rest = (rest + came).split(b"\n")
        for line in lines:
            asked.put(json.loads(line))
    asked.put(None)


def main():
    global begun  # noqa: PLW0603
    once = Training()
    if os.environ.get("GLOO") == "1":
        import torch.distributed

        torch.distributed.init_process_group("gloo")
        once.load(2)
    answer(os.getpid())
    if os.environ.get("GLOO") == "1":
        # A rank of torchrun has nobody to ask it for anything.
        time.sleep(600)
    threading.Thread(target=listen, daemon=True).start()
    while (wanted := asked.get()) is not None:
        name, options = wanted
        if name in PHASES:
            begun = False
            PHASES[name](**options)
        else:
            answer(getattr(once, name)(**options))
    os._exit(0)


if __name__ == "__main__":
    main()
