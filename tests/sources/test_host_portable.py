"""The reading through psutil, which is all there is where Linux's /proc is not."""

from __future__ import annotations

from gpuwatch.core.source import ManualClock, SystemClock
from gpuwatch.sources.linux.host_portable import PortableHostReader
from tests.support.children import wait_until


def test_psutil_gives_cpu_and_memory() -> None:
    """Plausible on whatever machine this is."""
    reader = PortableHostReader(SystemClock())
    reader.open()
    wait_until(lambda: reader.read()[0].cpu_percent is not None)
    host, problems = reader.read()
    assert problems == ()
    assert host.cpu_percent is not None
    assert 0 <= host.cpu_percent <= 100
    assert host.core_percents is not None
    assert len(host.core_percents) == host.core_count
    assert host.memory_total_bytes is not None
    assert host.memory_used_bytes is not None
    assert 0 < host.memory_used_bytes < host.memory_total_bytes


def test_what_only_linux_has_is_unknown() -> None:
    """Pressure and quota are None, not zero; so are rates before a second sample."""
    reader = PortableHostReader(ManualClock())
    reader.open()
    host, _ = reader.read()
    assert host.pressure_io_some_percent is None
    assert host.quota_cores is None
    assert host.cpu_percent is None
    assert host.disk_read_bytes_per_second is None
