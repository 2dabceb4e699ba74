"""The readings of a moment of the past, put together from the history: what the numbers beside the
charts say while those do not show now."""

from dataclasses import replace

from gpuwatch.core.history import GPU_SERIES, HOST_SERIES, Column, Series
from gpuwatch.core.model import Gpu, GpuReading, Host
from gpuwatch.tui.charts.strips import Columns
from gpuwatch.tui.view import View

_WHOLE = {
    "memory_used_bytes",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "swap_used_bytes",
    "shm_used_bytes",
}
"""Fields that are whole numbers."""


def past_column(view: View, series: Columns | None) -> Column | None:
    """Values of ``series`` in the column looked at; ``None``: not read, or it is now."""
    moment = view.timeline.moment
    if moment is None or series is None:
        return None
    column = series.columns(moment, view.column_seconds, 1)[0]
    return None if column is None else Column(*column)


def past_gpu(view: View, gpu: Gpu) -> Gpu:
    """``gpu`` with its readings of that moment; what has no history is not known of it."""
    if view.timeline.moment is None:
        return gpu
    history, now = view.history, gpu.reading
    values = {
        name: _value(view, name, history.gpu(gpu.uuid, name))
        for name in ("busy_percent", *GPU_SERIES)
    }
    reading = GpuReading(
        **values,  # type: ignore[arg-type]
        memory_used_is_process_sum=now.memory_used_is_process_sum,
        ecc_corrected_count=now.ecc_corrected_count,
        ecc_uncorrected_count=now.ecc_uncorrected_count,
        remapped_rows_pending=now.remapped_rows_pending,
        remapped_rows_failed=now.remapped_rows_failed,
    )
    # A limit that is not recorded at that moment was most likely the one of now.
    if reading.power_limit_watts is None:
        reading = replace(reading, power_limit_watts=now.power_limit_watts)
    return replace(gpu, reading=reading)


def past_host(view: View, host: Host) -> Host:
    """The same of the machine."""
    if view.timeline.moment is None:
        return host
    history = view.history
    values = {name: _value(view, name, history.host(name)) for name in HOST_SERIES}
    cores = host.core_percents
    if cores is not None:
        cores = tuple(_value(view, "", history.host_core(number)) for number in range(len(cores)))
    return replace(host, core_percents=cores, **values)  # type: ignore[arg-type]


def _value(view: View, name: str, series: Series | None) -> float | int | None:
    column = past_column(view, series)
    if column is None:
        return None
    return round(column.mean) if name in _WHOLE else column.mean
