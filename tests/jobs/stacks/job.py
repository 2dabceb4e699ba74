"""A training job on the CPU for tests of stacks: it does what each line of its input names."""

import os
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

wanted = ""
said = ""


def goes_on(name):
    """Whether ``name`` is still wanted; says so once it has really begun."""
    global said  # noqa: PLW0603
    if said != name:
        said = name
        print(name, flush=True)
    return wanted == name


class Images(Dataset):
    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return augment(torch.zeros(64), self.seconds), 0


def augment(image, seconds):
    time.sleep(seconds)
    return image + 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(512, 512), nn.Linear(512, 10)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def train_one_epoch(name, loader):
    for _batch in loader:
        if not goes_on(name):
            return


def loading(name):
    train_one_epoch(name, DataLoader(Images(0.02), batch_size=4, num_workers=0))


def starving(name):
    train_one_epoch(name, DataLoader(Images(0.05), batch_size=4, num_workers=1))


def saving(name):
    state = {"weights": torch.zeros(2_000_000)}
    with tempfile.TemporaryDirectory() as folder:
        while goes_on(name):
            torch.save(state, Path(folder) / "checkpoint.pt")


def evaluate(name):
    model, inputs = Net(), torch.zeros(2000, 512)
    with torch.no_grad():
        while goes_on(name):
            model(inputs)


def training(name):
    model, inputs = Net(), torch.zeros(2000, 512)
    while goes_on(name):
        loss = model(inputs).sum()
        loss.backward()


def logging(name):
    wait = time.sleep
    while goes_on(name):
        # Stands for a loss on a device: only the text of the line says what is waited for.
        wait(0.05) or torch.ones(1).sum().item()


PHASES = {
    "loading": loading,
    "starving": starving,
    "saving": saving,
    "evaluate": evaluate,
    "training": training,
    "logging": logging,
}


def obey():
    global wanted  # noqa: PLW0603
    # Not from sys.stdin: a forked worker would wait for ever for the lock this thread holds.
    while line := os.read(0, 1000):
        wanted = line.decode().strip()
    wanted = "end"


def main():
    threading.Thread(target=obey, daemon=True).start()
    print("ready", flush=True)
    while wanted != "end":
        if wanted in PHASES:
            PHASES[wanted](wanted)
        time.sleep(0.001)


if __name__ == "__main__":
    main()
