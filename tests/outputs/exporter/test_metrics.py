"""The metrics of the exporter: what snapshots and diagnoses become, and what has no sample."""

import os
import re
import time
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from gpuwatch.core.model import Host, Job, Problem, Process, RdmaPort, Snapshot, XidError
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.diagnosis.finding import Diagnosis, Finding
from gpuwatch.diagnosis.ledger import Ledger
from gpuwatch.outputs.exporter.metrics import FINDINGS_MOST, JOBS_MOST, Metrics
from gpuwatch.outputs.exporter.totals import SCRAPERS_KEPT, BusyWindows
from gpuwatch.sources.kernel_log import KernelLog
from tests.support.recordings import simulated
from tests.support.snapshots import gpu, snapshot

NOTHING = Diagnosis(taken_at_unix_seconds=0.0, watched_seconds=0.0, verdict="")
FINDING = Finding(rule="oscillation", severity="info", confidence=1.0, summary="")
BUSY = gpu(busy_percent=1.0)


class Exposed:
    """The metrics as a scraper sees them."""

    def __init__(self, *looks: Snapshot, **options: Any) -> None:
        self.stale = False
        self.metrics = Metrics(lambda: (0.5, self.stale), **options)
        self.ledger = Ledger()
        for one in looks:
            self.push(one)

    def push(self, one: Snapshot, diagnosis: Diagnosis = NOTHING) -> None:
        self.ledger.add_diagnosis(diagnosis)
        self.metrics.push(one, diagnosis, self.ledger)

    def __call__(self, name: str, *labels: str, **asked: Any) -> dict[str, float]:
        """The samples of a metric by some of its labels, in a word each."""
        page, _ = self.metrics.page(**{"scraper": "a", **asked})
        families = text_string_to_metric_families(page.decode())
        samples = [one for family in families for one in family.samples]
        found = [one for one in samples if one.name == f"gpuwatch_{name}"]
        return {" ".join([one.labels[label] for label in labels]): one.value for one in found}


def test_a_reading_is_in_base_units_and_one_that_was_not_taken_has_no_sample() -> None:
    """Ratios from 0 to 1, hertz; a measured zero is a sample, ``None`` is none."""
    one = gpu(busy_percent=40.0, sm_clock_mhz=1980, fan_percent=0.0, energy_joules=2.5)
    exposed = Exposed(snapshot(gpus=(replace(one, allocated_to=("17",)),)))
    assert exposed("gpu_allocation_info", "gpu", "slurm_job_id") == {"0 17": 1.0}
    assert exposed("gpu_busy_ratio", "gpu", "gpu_uuid") == {"0 GPU-a": pytest.approx(0.4)}
    names = "sm_clock_hertz fan_ratio energy_joules_total power_watts ecc_errors_total"
    found = [exposed(f"gpu_{name}") for name in names.split()]
    assert found == [{"": 1.98e9}, {"": 0.0}, {"": 2.5}, {}, {}]
    engines = gpu(memory_controller_percent=9.0, encoder_percent=0.0, decoder_percent=None)
    exposed = Exposed(snapshot(gpus=(engines,)))
    names = "memory_controller encoder decoder"
    found = [exposed(f"gpu_{name}_ratio") for name in names.split()]
    assert found == [{"": pytest.approx(0.09)}, {"": 0.0}, {}]


def test_errors_of_links_have_their_kind_and_their_port() -> None:
    """NVLinks by GPU, InfiniBand by adapter and port; what a port does not count has no sample."""
    links = gpu(busy_percent=1.0, nvlink_recovery_count=2, nvlink_crc_count=9, pcie_replay_count=1)
    port = RdmaPort(
        device="mlx5_0",
        port=1,
        link_layer="InfiniBand",
        state="active",
        speed_gigabits_per_second=400.0,
        link_downed_count=1,
        symbol_error_count=0,
    )
    down = RdmaPort(device="mlx5_1", port=2, state="down")
    host = Host(name="box", rdma_ports=(port, down))
    exposed = Exposed(snapshot(gpus=(links,), host=host))
    assert exposed("gpu_nvlink_errors_total", "gpu", "kind") == {"0 crc": 9.0, "0 recovery": 2.0}
    assert exposed("gpu_pcie_replays_total", "gpu") == {"0": 1.0}
    active = exposed("rdma_port_active", "device", "port", "link_layer")
    assert active == {"mlx5_0 1 InfiniBand": 1.0, "mlx5_1 2 ": 0.0}
    errors = exposed("rdma_port_errors_total", "device", "kind")
    assert errors == {"mlx5_0 link_downed": 1.0, "mlx5_0 symbol": 0.0}
    assert exposed("rdma_port_speed_bits_per_second", "device") == {"mlx5_0": 4e11}


def swinging(at: float) -> Snapshot:
    """A GPU that goes between 0 and 99% from the tenth to the twelfth second, and is else at 50.
    Every seventh look comes before the driver's samples."""
    percents = (0.0, 99.0) if 10.0 <= at < 12.0 else (50.0, 50.0)
    samples = tuple([(at + place / 2, one) for place, one in enumerate(percents)] * (at % 7 != 0))
    return snapshot(at=at, gpus=(gpu(busy_samples=samples, busy_percent=50.0),))


def test_each_scraper_sees_the_band_of_its_own_interval() -> None:
    """Who asks every 30 seconds sees the swing that was over when who asks every 5 came again; a
    window that is named is nobody's interval, and who asks twice gets the newest again."""
    exposed, often = Exposed(), []
    for second in range(31):
        exposed.push(swinging(float(second)))
        if second % 5 == 4:
            often += exposed("gpu_busy_min_ratio", scraper="often").values()
    assert often == [0.5, 0.5, 0.0, 0.5, 0.5, 0.5]
    names = [f"gpu_busy_{name}ratio" for name in ("min_", "max_", "deviation_", "")]
    band = [exposed(name, window_seconds=30.0)[""] for name in names]
    assert band == pytest.approx([0.0, 0.99, 0.137, 0.5], abs=0.01)
    assert [exposed("gpu_busy_min_ratio", scraper="often")[""] for _ in "ab"] == [0.5, 0.5]
    # Looks of five minutes and some scrapers are kept, however many there are.
    windows = BusyWindows()
    for second in range(1000):
        windows.push(float(second), {"a": array("f", [5.0])})
        windows.of(f"10.0.0.{second}", None)
    assert len(windows._scrapers) == SCRAPERS_KEPT
    assert len(windows.of("new", 1000.0)["a"]) == 301


def test_a_gpu_that_does_not_answer_has_no_readings() -> None:
    """One that is lost is said to be; where none answers, the driver hangs and nothing is up."""
    exposed = Exposed(snapshot(gpus=(gpu(lost=True), gpu("GPU-b", 1))))
    assert exposed("gpu_lost", "gpu") == {"0": 1.0, "1": 0.0}
    assert exposed("up") == {"": 1.0}
    assert exposed("gpu_processes") == exposed("gpu_memory_total_bytes") == {}
    for gpus in ((), (gpu(),)):
        assert Exposed(snapshot(gpus=gpus))("up") == {"": 0.0}
    # Of what is stale only the age is served.
    exposed.stale = True
    assert exposed("up") == {"": 0.0}
    assert exposed("last_collection_age_seconds") == {"": 0.5}
    assert b"gpuwatch_gpu_" not in exposed.metrics.page("a")[0]


def test_a_list_of_processes_that_cannot_be_read_is_no_empty_one() -> None:
    """A count is a sample where processes are known, and zero only where they could be."""
    failing = Problem(source="nvml", message="the list cannot be read", target="GPU-b")
    one = snapshot(gpus=(BUSY, gpu("GPU-b", 1, busy_percent=1.0)), problems=(failing,))
    assert Exposed(one)("gpu_processes", "gpu") == {"0": 0.0}
    used = replace(one, processes=(Process(pid=7, gpu_uuid="GPU-b"),))
    assert Exposed(used)("gpu_processes", "gpu") == {"0": 0.0, "1": 1.0}


def test_throttling_and_traffic_add_up() -> None:
    """Two looks, a second apart: seconds by reason (the driver knows better), bytes by rate. The
    first look says nothing of the time before it."""
    boost = "sync_boost"
    for durations, reasons, seconds in (
        (((boost, 0.5),), None, 0.5), (None, (boost, "gpu_idle"), 1.0), (None, None, None),
        (((boost, 0.0),), (boost,), 0.0),
    ):  # fmt: skip
        read = {"throttle_durations": durations, "throttle_reasons": reasons, "busy_percent": 1.0}
        one = gpu(**read, pcie_rx_bytes_per_second=100.0)
        exposed = Exposed(snapshot(at=0.0, gpus=(one,)), snapshot(at=1.0, gpus=(one,)))
        found = exposed("gpu_throttle_seconds_total", "reason")
        assert found.get(boost) == seconds
        assert "gpu_idle" not in found
        assert exposed("gpu_pcie_receive_bytes_total") == {"": 100.0}
        assert exposed("gpu_pcie_transmit_bytes_total") == {}


def test_a_starved_machine_has_its_cause_in_every_series() -> None:
    """Idle seconds, the finding and what it lost go by the rule; all idle time is of some cause."""
    engine, exposed = Engine(), Exposed()
    for one in simulated("starved", 90.0, gpus=2):
        engine.push(one)
        exposed.push(one, engine.diagnosis)
    (job,) = exposed("job_info", "gpu_job")
    active = exposed("finding_active", "rule", "severity", "gpu_job")
    assert active[f"loader_cpu_bound warning {job}"] == 1.0
    idle = exposed("gpu_idle_seconds_total", "gpu", "cause")
    assert idle["0 loader_cpu_bound"] > 10.0
    assert 30.0 < sum(value for key, value in idle.items() if key[0] == "0") < 90.0
    (finding,) = [one for one in engine.diagnosis.findings if one.rule == "loader_cpu_bound"]
    cost = exposed("finding_cost_gpu_seconds_total", "rule")
    assert cost["loader_cpu_bound"] == pytest.approx(finding.cost_gpu_seconds)
    gain = exposed("finding_gain", "rule", "bound", "gpu_job")
    assert finding.gain is not None
    assert gain[f"loader_cpu_bound estimate {job}"] == finding.gain.factor
    assert gain[f"loader_cpu_bound high {job}"] == finding.gain.high


@pytest.mark.parametrize("pod", ["ml/train-0", "train-0", None])
def test_a_pod_has_the_labels_that_other_exporters_give_it(pod: str | None) -> None:
    """The namespace apart; empty, as Prometheus has it, where it is not known."""
    job = Job(pid=4242, started_at_unix_seconds=5.0, pod=pod)
    names = Exposed(snapshot(gpus=(BUSY,), jobs=(job,)))("job_info", "namespace", "pod")
    assert [one.strip() for one in names] == [(pod or "").replace("/", " ")]


def test_pids_and_command_lines_are_left_out_unless_asked_for() -> None:
    """And then they are one label each, whatever is in them."""
    hostile = 'train "x"\n# TYPE up\\ \x1b[31m{}=,' + "y" * 500
    job = Job(pid=4242, started_at_unix_seconds=5.0, user="ada", command=hostile)
    looked = snapshot(gpus=(BUSY,), jobs=(job,))
    page = Exposed(looked).metrics.page("a")[0].decode()
    assert not re.search("job_info{[^}]*(command|pid|yyy)", page)
    loud = Exposed(looked, pids=True, commands=True)
    (label,) = loud("job_info", "pid", "user", "command")
    assert label.startswith('4242 ada train "x" # TYPE up\\ \N{REPLACEMENT CHARACTER}[31m{}=,yy')
    assert len(label) == 120 + len("4242 ada ")


def test_jobs_and_findings_are_capped_and_counted() -> None:
    """Jobs on GPUs come first."""
    jobs = [Job(pid=pid, started_at_unix_seconds=1.0) for pid in range(1, JOBS_MOST + 3)]
    jobs[-1] = replace(jobs[-1], gpu_uuids=("GPU-a",))
    found = [replace(FINDING, gpus=(str(number),)) for number in range(FINDINGS_MOST + 5)]
    exposed = Exposed()
    exposed.push(snapshot(jobs=tuple(jobs)), replace(NOTHING, findings=tuple(found)))
    asked = [("job_info", "gpu_job"), ("job_gpu_info", "gpu_job"), ("finding_active", "gpu_uuid")]
    assert [len(exposed(*one)) for one in asked] == [JOBS_MOST, 1, FINDINGS_MOST]
    assert exposed("left_out", "what") == {"accounts": 0.0, "jobs": 2.0, "findings": 5.0}


def test_xid_errors_have_their_counts_and_times() -> None:
    """By code and card, be it one that NVML does not know any more; also when all else is stale.
    Only the kernel's own records count, and nothing that quotes one."""
    # As the kernel hands out its log: one record a read.
    reading, writing = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
    log = KernelLog(Path(f"/proc/self/fd/{reading}"))
    xid = "NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
    for record in (
        f"12,1,1,-;{xid}", f"4,2,1,-;[job] {xid}", "4,x;", "\udcff", f"4,3,1000000,-;{xid}",
        "6,4,1500000,-;usb 1-1: new\n SUBSYSTEM=usb\n", f"4,5,3000000,-,caller=T9;{xid}",
        "4,6,4000000,-;NVRM: Xid (PCI:0001:AF:00 GPU-I:05): 31, pid=7, Ch 8\n",
    ):  # fmt: skip
        os.write(writing, record.encode(errors="surrogateescape"))
    known = replace(BUSY, identity=replace(BUSY.identity, pci_bus_id="00000000:18:00.0"))
    exposed = Exposed(snapshot(gpus=(known,)), log=log)
    counts = exposed("gpu_xid_errors_total", "gpu_uuid", "pci_bus_id", "xid")
    assert counts == {"GPU-a 0000:18:00 79": 2.0, " 0001:af:00 31": 1.0}
    exposed.stale = True
    at = exposed("gpu_xid_last_timestamp_seconds", "xid")
    assert at["31"] - at["79"] == pytest.approx(1.0, abs=0.1)
    assert exposed("kernel_log_readable") == {"": 1.0}
    # The log's own clock goes wrong in the long run; what is new is of now.
    os.write(writing, f"4,7,9000000,-;{xid}".encode())
    exposed.push(snapshot())
    assert abs(log.xids["0000:18:00", 79][1] - time.time()) < 3600.0
    for file in (reading, writing, log._file):
        os.close(file)
    told = replace(known, xid_errors=(XidError(31, 4, 1_700_000_000.0),))
    blind = Exposed(snapshot(gpus=(told,)), log=KernelLog(Path("/none")))
    # What the driver's events say needs no rights.
    assert blind("gpu_xid_errors_total", "pci_bus_id", "xid") == {"0000:18:00 31": 4.0}
    assert blind("kernel_log_readable") == {"": 0.0}
