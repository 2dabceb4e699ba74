"""Xid errors in the kernel's log, beside those that the driver's events tell."""

import os
from dataclasses import replace
from pathlib import Path

from gpuwatch.core.model import XidError
from gpuwatch.sources.kernel_log import KernelLog
from tests.support.snapshots import gpu


def test_errors_of_the_log_are_put_with_those_of_the_drivers_events() -> None:
    """The log also has what came before watching began, of a lost card as well; a code that both
    know is counted once."""
    reading, writing = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
    log = KernelLog(Path(f"/proc/self/fd/{reading}"))
    for code in (31, 31, 79):
        os.write(writing, b"4,1,1000000,-;NVRM: Xid (PCI:0000:18:00): %d, pid=7\n" % code)
    log.read()
    one = gpu("GPU-a", lost=True)
    card = replace(one, identity=replace(one.identity, pci_bus_id="00000000:18:00.0"))
    told = replace(card, xid_errors=(XidError(31, 1, 5.0), XidError(43, 1, 6.0)))
    found, other = log.with_xids((told, gpu("GPU-b")))
    assert [(error.code, error.times) for error in found.xid_errors or ()] == [
        (31, 2), (43, 1), (79, 1),
    ]  # fmt: skip
    assert other.xid_errors is None
    for file in (reading, writing):
        os.close(file)
    log.close()


def test_a_log_that_may_not_be_read_changes_nothing() -> None:
    """Errors stay unknown where nothing tells them, and the events' own stay."""
    log = KernelLog(Path("/none"))
    told = replace(gpu("GPU-a"), xid_errors=(XidError(43, 1, 6.0),))
    assert log.with_xids((told, gpu("GPU-b"))) == (told, gpu("GPU-b"))
