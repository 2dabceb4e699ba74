"""A PCIe link at a fraction of its speed."""

from __future__ import annotations

from tests.diagnosis.windows import check_of, fires, gpu, gpu_only, is_clear, steady, swinging

check = check_of("pcie_degraded")

FIRST_BY_FOUR = {"pcie_generation_busy": 1, "pcie_width_busy": 4}


def test_a_job_that_waits_for_copies_over_a_slow_link_fires() -> None:
    """The cost is the idle time in which the link was full."""
    slow = gpu(busy=swinging(0.35), pcie_rx_idle_bytes_per_second=0.8e9, **FIRST_BY_FOUR)
    said = fires(check(gpu_only(slow)))
    assert said.severity == "warning"
    assert said.lost_share is not None
    assert 0.5 < said.lost_share < 0.7
    assert "memory_not_pinned" in said.explains
    assert said.advice[0].present == "generation 1 x4"


def test_a_slow_link_that_nothing_waits_for_is_information() -> None:
    """A fed GPU loses nothing by it now."""
    said = fires(check(gpu_only(gpu(**FIRST_BY_FOUR))))
    assert said.severity == "info"
    assert said.lost_share is None


def test_half_the_lanes_are_told_only_where_copies_are_waited_for() -> None:
    """Two cards that share a slot's lanes are built that way."""
    is_clear(check(gpu_only(gpu(pcie_width_busy=8))))
    waits = gpu(pcie_width_busy=8, busy=swinging(0.4), pcie_rx_idle_bytes_per_second=25e9)
    fires(check(gpu_only(waits)))


def test_less_sure_without_the_traffic() -> None:
    """Whether copies fill the link was not read."""
    unread = {"pcie_rx_idle_bytes_per_second": None, "pcie_rx_bytes_per_second": None}
    blind = gpu(busy=steady(40.0), **unread, **FIRST_BY_FOUR)
    assert fires(check(gpu_only(blind))).missing == ("PCIe traffic",)


QUIET = {"when a starved gpu idles on a good link": gpu_only(gpu(busy=swinging(0.3)))}


UNKNOWN = {
    "while the link was not read under load": (
        gpu_only(gpu(pcie_generation_busy=None)),
        "under load",
    )
}
