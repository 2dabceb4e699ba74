"""``gpuwatch doctor`` on simulated, broken and missing drivers."""

import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.commands import doctor
from gpuwatch.core.model import GpuReading
from gpuwatch.doctor import examination, machine, nvidia_smi
from gpuwatch.outputs import doctor as page
from gpuwatch.recording.file import open_any
from gpuwatch.sources.kernel_log import KernelLog
from gpuwatch.sources.nvml import readings
from tests.commands.conftest import Gpuwatch, Ran
from tests.commands.running import ROOT, environment_in, program
from tests.commands.test_cli import on_a_terminal
from tests.support.fake_nvml import FakeNvml, GpuProcess, MigInstance, create_or_skip
from tests.support.fake_nvml_layout import FUNCTIONS

Machine = Callable[..., FakeNvml]
Check = dict[str, Any]
OK, BROKEN, WARNINGS = 0, 1, 3

LISTED = "GPU 0: NVIDIA H200 (UUID: GPU-00000000-1111-2222-3333-abcdef000000)"


@pytest.fixture
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Makes the machine, with GPUs that stand still; without nvidia-smi."""
    made: list[Any] = []
    monkeypatch.setattr(doctor, "ROOT", tmp_path / "root")
    in_root(tmp_path)

    def make(**options: Any) -> FakeNvml:
        fake = create_or_skip(tmp_path, **options)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        for gpu in fake.gpu[: options.get("gpus", 1)]:
            gpu.set(memory_used_bytes=3 << 30)
        context = fake.in_this_process()
        made.append(context)
        context.__enter__()
        return fake

    yield make
    for context in made:
        context.__exit__(None, None, None)


def in_root(folder: Path, **files: str) -> None:
    """A machine as ``/proc``, ``/dev`` and ``/sys`` show it: one card of NVIDIA with its driver."""
    whole = {
        "proc/self/stat": "1 (gpuwatch) S",
        "proc/self/mountinfo": "22 27 0:21 / /proc rw - proc proc rw\n"
        "32 31 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
        "570.124.06  Release Build  (dvs-builder@U16-A24-9-2)\nGCC version:  gcc version 13.3.0\n",
        "dev/nvidia0": "",
        "sys/bus/pci/devices/0000:10:00.0/vendor": "0x10de\n",
        "sys/bus/pci/devices/0000:10:00.0/class": "0x030200\n",
        **files,
    }
    for name, text in whole.items():
        path = folder / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def install_smi(folder: Path, script: str) -> None:
    """Put a shell script in the place of nvidia-smi."""
    program_file = folder / "bin" / "nvidia-smi"
    program_file.parent.mkdir(exist_ok=True)
    program_file.write_text(f"#!/bin/sh\n{script}\n")
    program_file.chmod(0o755)


def checks(ran: Ran) -> list[Check]:
    found: list[Check] = ran.json["checks"]
    return found


def check(ran: Ran, name: str) -> Check:
    """The only one of that name."""
    (found,) = [one for one in checks(ran) if one["name"] == name]
    return found


def test_a_machine_without_a_gpu_is_in_order() -> None:
    """It is said in the dashboard's own sentence, and nothing counts as broken."""
    done = program("doctor")
    told = " ".join(done.stdout.split())
    assert done.returncode == OK
    assert "- skip library No NVIDIA driver was found" in told
    assert "Nothing is wrong, but there is no GPU to watch:" in told


def test_each_reading_is_a_check_with_its_value_and_the_cost_of_a_call(
    simulated: Machine, gpuwatch: Gpuwatch
) -> None:
    fake = simulated()
    fake.gpu[0].set(temperature_c=47, power_mw=212_000)
    ran = gpuwatch("doctor", "--json", code=OK)
    found = {one["name"]: one for one in checks(ran) if one["group"] == "Readings"}
    assert {reading.name for reading in readings.READINGS} <= found.keys()
    assert found["the temperature"]["values"]["temperature_celsius"] == 47
    assert found["power"]["values"]["power_watts"] == 212
    assert found["the memory in use"]["values"]["memory_used_bytes"] == 3 << 30
    assert found["the temperature"]["target"] == ran.json["gpus"][0]["uuid"]
    passed = [one for one in found.values() if one["status"] == "pass"]
    taken = {reading.name for reading in readings.READINGS} & {one["name"] for one in passed}
    assert all(found[name]["values"]["call_microseconds"] > 0 for name in taken)
    assert found["the fan speed"]["status"] == "skip"
    fields = set(GpuReading.__dataclass_fields__)
    named = set(found["energy, link and throttle counters"]["values"])
    assert named - {"call_microseconds"} <= fields


def test_fine_samples_records_and_events_are_described(
    simulated: Machine, gpuwatch: Gpuwatch
) -> None:
    fake = simulated()
    fake.gpu[0].waveform("square")
    fake.gpu[0].processes = [GpuProcess(pid=os.getpid(), used_bytes=1 << 30)]
    ran = gpuwatch("doctor", "--json", code=OK)
    samples = check(ran, readings.SAMPLES)["values"]
    assert samples["samples"] == 120
    assert samples["spacing_seconds"] == pytest.approx(0.167)
    assert 0 <= samples["newest_age_seconds"] < samples["oldest_age_seconds"]
    records = check(ran, readings.PROCESS_LIST)["values"]
    assert (records["record_bytes"], records["processes"]) == (24, 1)
    assert records["function"] == "ComputeRunningProcesses_v3"
    assert check(ran, readings.EVENTS)["status"] == "pass"


def test_fine_samples_are_as_old_as_when_they_were_asked_for(
    simulated: Machine, gpuwatch: Gpuwatch
) -> None:
    """However long the driver took for the readings before them in the same look."""
    fake = simulated()
    fake.gpu[0].waveform("square")
    fake.delay("nvmlDeviceGetUtilizationRates", 0.4)
    samples = check(gpuwatch("doctor", "--json"), readings.SAMPLES)["values"]
    assert 0 <= samples["newest_age_seconds"] < samples["oldest_age_seconds"]


@pytest.mark.parametrize(
    ("ahead", "says"),
    [
        (30, "ahead of this machine's clock"),
        (7230, "stamped 2h01 ahead of this machine's clock, so the newest is taken for now"),
        (-60, "adds"),
    ],
)
def test_samples_of_another_time_are_a_warning(
    simulated: Machine, gpuwatch: Gpuwatch, ahead: int, says: str
) -> None:
    now_us = time.time_ns() // 1000
    simulated().gpu[0].set_samples([(now_us + (ahead * 1_000_000) + at, 50) for at in range(9)])
    ran = gpuwatch("doctor", "--json", code=WARNINGS)
    found = check(ran, readings.SAMPLES)
    assert found["status"] == "warn"
    assert says in found["reason"]


def test_a_card_without_fine_samples_is_told_in_the_dashboards_words(
    simulated: Machine, gpuwatch: Gpuwatch
) -> None:
    fake = simulated()
    fake.fault("nvmlDeviceGetSamples", "NOT_SUPPORTED")
    ran = gpuwatch("doctor", "--json", code=OK)
    found = check(ran, readings.SAMPLES)
    assert found["status"] == "skip"
    assert found["reason"].startswith("GPU 0 has no fine utilisation samples: the busy percentage")
    said = gpuwatch("status", "--json").json["problems"]
    assert found["reason"] in [problem["message"] for problem in said]


Fault = Callable[[FakeNvml], object]


@pytest.mark.parametrize(
    ("fault", "name", "status", "reason", "cure"),
    [
        (lambda fake: fake.fault("nvmlDeviceGetFanSpeed", "UNKNOWN"),
         "the fan speed", "warn", "^unknown error$", "dmesg"),
        (lambda fake: fake.fault("nvmlDeviceGetTemperature", "NO_PERMISSION", gpu=0),
         "the temperature", "warn", "^no permission$", "as root it may work"),
        # One of importance.
        (lambda fake: fake.fault("nvmlDeviceGetUtilizationRates", "UNKNOWN", gpu=0),
         "the utilisation", "fail", "^unknown error$", ""),
        (lambda fake: fake.fault("nvmlDeviceGetUtilizationRates", "GPU_IS_LOST", gpu=1),
         "lost", "fail", r"^GPU 1 \(.*\) is lost\.$", "reset or reboot"),
        # Though the rest of the reading is right; the value is said.
        (lambda fake: fake.gpu[0].set(utilization=991), "the utilisation", "warn",
         r"cannot be true \(991%\).*not shown, memory controller 0%", ""),
        # Several have a name of their own: values that cannot be true are no matter of its pace.
        (lambda fake: fake.gpu[0].set(utilization=991, temperature_c=255),
         "answers of the driver", "warn", r"cannot be true \(991% and 255 C\)", ""),
        # What PIDs of nobody may be stands where other warnings have their cure.
        (lambda fake: setattr(fake.gpu[0], "processes", [GpuProcess(pid=4_194_301)]),
         "processes on GPUs", "warn", "^1 process that the driver names cannot be found",
         "^It may belong to a virtual machine, or have died"),
    ],
)  # fmt: skip
def test_a_fault_is_one_check_with_its_reason(
    simulated: Machine,
    gpuwatch: Gpuwatch,
    fault: Fault,
    name: str,
    status: str,
    reason: str,
    cure: str,
) -> None:
    """And with what to do; the other GPU is checked as if it were not there."""
    fake = simulated(preset=["rtx4090", "h200"], gpus=2)
    fault(fake)
    ran = gpuwatch("doctor", "--json", code=WARNINGS if status == "warn" else BROKEN)
    found = [one for one in checks(ran) if one["name"] == name and one["status"] != "pass"]
    assert {one["status"] for one in found} == {status}
    assert re.search(reason, found[0]["reason"])
    assert re.search(cure, found[0]["cure"] or "")
    assert ran.json["worst"] == status
    assert "pass" in [one["status"] for one in checks(ran) if one["name"] == "the temperature"]


@pytest.mark.parametrize(
    ("kernel", "library", "status"),
    [
        ("570.124.06", "12.570.124.06", "pass"),
        # The library can leave out the last part: intel/llvm#17614.
        ("570.124.06", "12.570.124", "pass"),
        ("550.54.15", "12.570.124", "fail"),
    ],
)
def test_driver_and_library_are_compared(
    simulated: Machine, gpuwatch: Gpuwatch, tmp_path: Path, kernel: str, library: str, status: str
) -> None:
    """Also where the library does not start because of it."""
    fake = simulated()
    fake.set(nvml_version=library)
    line = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {kernel}  Thu Feb 22 2024\n"
    in_root(tmp_path, **{"proc/driver/nvidia/version": line})
    if status == "fail":
        fake.fault_init("LIB_RM_VERSION_MISMATCH")
    ran = gpuwatch("doctor", "--json", code=BROKEN if status == "fail" else OK)
    found = check(ran, "versions in step")
    assert found["status"] == status
    assert found["values"]["kernel_module_version"] == kernel
    if status == "fail":
        assert found["cure"].startswith("Reboot, or unload and reload the nvidia module.")
        assert check(ran, "library")["status"] == "fail"


def test_a_library_that_has_its_version_in_its_name_is_believed(
    simulated: Machine, gpuwatch: Gpuwatch, tmp_path: Path
) -> None:
    """The last part tells two updates apart: tinygrad/open-gpu-kernel-modules#47."""
    simulated().fault_init("LIB_RM_VERSION_MISMATCH")
    maps = "7f00-7f10 r-xp 0 08:01 9 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.124.04\n"
    in_root(tmp_path, **{"proc/self/maps": maps})
    found = check(gpuwatch("doctor", "--json", code=BROKEN), "versions in step")
    assert found["status"] == "fail"
    assert found["values"]["library_version"] == "570.124.04"


@pytest.mark.parametrize(
    ("error", "there", "status"),
    [
        ("DRIVER_NOT_LOADED", True, "fail"),
        ("DRIVER_NOT_LOADED", False, "skip"),
        ("NO_PERMISSION", False, "fail"),
    ],
)
def test_a_driver_that_does_not_start_fails_where_there_is_a_gpu(
    simulated: Machine,
    gpuwatch: Gpuwatch,
    tmp_path: Path,
    error: str,
    there: bool,
    status: str,
) -> None:
    """An image with the driver also runs where there is no card."""
    simulated().fault_init(error)
    if not there:
        shutil.rmtree(tmp_path / "root/sys")
        (tmp_path / "root/dev/nvidia0").unlink()
    ran = gpuwatch("doctor", "--json", code=BROKEN if status == "fail" else OK)
    assert check(ran, "library")["status"] == status


def test_a_call_that_hangs_is_named_and_waited_for_no_longer(
    simulated: Machine, gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which reading of which GPU it was is what a person looks for first."""
    fake = simulated(gpus=2)
    monkeypatch.setattr(doctor, "PATIENCE_SECONDS", 0.5)
    fake.hang("nvmlDeviceGetTemperature", gpu=1)
    ran = gpuwatch("doctor", "--json", code=BROKEN)
    found = check(ran, "library")
    assert found["status"] == "fail"
    assert "has not answered" in found["reason"]
    assert "It was asked for: the temperature of GPU 1." in found["reason"]


def test_a_driver_without_gpus_is_no_fault_where_none_was_given(
    simulated: Machine, gpuwatch: Gpuwatch, tmp_path: Path
) -> None:
    """A device file says that one was."""
    simulated(gpus=0)
    broken = check(gpuwatch("doctor", "--json", code=BROKEN), "none")
    assert broken["reason"].startswith("The NVIDIA driver works but has no GPU to show.")
    (tmp_path / "root/dev/nvidia0").unlink()
    shutil.rmtree(tmp_path / "root/sys")
    assert check(gpuwatch("doctor", "--json", code=OK), "none")["status"] == "skip"


@pytest.mark.parametrize("answer", ["garbage", "garbage count", "empty"])
def test_answers_that_make_no_sense_break_no_check(
    simulated: Machine, gpuwatch: Gpuwatch, answer: Any
) -> None:
    """Every function of the driver but those that start it and list its GPUs."""
    fake = simulated()
    kept = ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandle", "nvmlError")
    for function in FUNCTIONS:
        if not function.startswith(kept):
            fake.answer(function, answer)
    ran = gpuwatch("doctor", "--json", code=None)
    assert ran.code in (OK, BROKEN, WARNINGS)
    assert "bug in gpuwatch" not in ran.out
    assert {one["group"] for one in checks(ran)} >= {"GPUs", "Readings", "Machine"}


def test_a_library_that_never_starts_is_no_wait(
    simulated: Machine, gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = simulated()
    monkeypatch.setattr(doctor, "PATIENCE_SECONDS", 0.3)
    for function in ("nvmlInit_v2", "nvmlInitWithFlags"):
        fake.hang(function)
    found = check(gpuwatch("doctor", "--json", code=BROKEN), "library")
    assert "It was asked for: nvmlInit." in found["reason"]


REFUSAL = "Failed to initialize NVML: Driver/library version mismatch"


@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        (f"echo '{LISTED}'", "pass", "it works, and lists 1 GPU"),
        (f"echo '{LISTED}'; echo '{LISTED}'", "warn", "lists 2 GPUs, of which the library has 1"),
        ("exec /bin/sleep 60", "warn", "not answered for 0.3 s"),
        # Its own words about a broken driver.
        (f"echo '{REFUSAL}'; echo 'NVML library version: 550.144'; exit 18", "warn", REFUSAL),
    ],
)
def test_nvidia_smi_is_asked_too(
    simulated: Machine,
    gpuwatch: Gpuwatch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    status: str,
    reason: str,
) -> None:
    monkeypatch.setattr(nvidia_smi, "PATIENCE_SECONDS", 0.3 if "sleep" in script else 10.0)
    install_smi(tmp_path, script)
    simulated()
    found = check(
        gpuwatch("doctor", "--json", code=OK if status == "pass" else WARNINGS), "nvidia-smi"
    )
    assert found["status"] == status
    assert reason in found["reason"]


def test_eight_gpus_are_no_more_lines_than_one(simulated: Machine, gpuwatch: Gpuwatch) -> None:
    """What differs on one of them is named."""
    fake = simulated(gpus=8)
    fake.fault("nvmlDeviceGetTemperature", "UNKNOWN", gpu=5)
    for at, gpu in enumerate(fake.gpu[:8]):
        gpu.set(memory_used_bytes=at << 30)
    ran = gpuwatch("doctor", code=WARNINGS)
    assert "memory in use 0B to 7.0G" in ran.words
    assert "! warn temperature GPU 5: unknown error" in ran.words
    assert "✓ pass temperature GPUs 0 to 4, 6 and 7: 40 C" in ran.words
    names = [line for line in ran.out.splitlines() if "pass" in line or "skip" in line]
    assert len(names) < 50


def test_the_page_fits_80_columns_and_says_what_is_next(
    simulated: Machine, gpuwatch: Gpuwatch
) -> None:
    simulated(preset="rtx4090").fault("nvmlDeviceGetFanSpeed", "UNKNOWN")
    ran = gpuwatch("doctor", code=WARNINGS)
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "\x1b" not in ran.out
    assert "It works, with warnings: 1 warn (fan speed), " in ran.words
    assert ran.out.endswith("For a bug report: gpuwatch doctor --bundle doctor.zip\n")
    plain = gpuwatch("doctor", "--ascii", code=WARNINGS)
    assert plain.out.isascii()
    assert "! warn  fan speed" in plain.out
    assert "+ pass  temperature" in plain.out


def test_colour_stands_beside_the_word() -> None:
    one = [machine.Check(group="Driver", name="library", status="fail", reason="no")]
    assert page.doctor_page(one, (), width=80, colour=True, unicode=True).splitlines()[1] == (
        "  \x1b[31m✗ fail\x1b[0m  library                     no"
    )


def test_mig_instances_are_counted_and_read(simulated: Machine, gpuwatch: Gpuwatch) -> None:
    fake = simulated()
    fake.gpu[0].set_mig([MigInstance(uuid=f"MIG-{at}", gpu_instance=7 + at) for at in range(3)])
    ran = gpuwatch("doctor", "--json", code=OK)
    assert check(ran, "MIG")["reason"] == "3 MIG instances on GPU 0: NVIDIA H200 MIG 1g.18gb"
    memory = [one["target"] for one in checks(ran) if one["name"] == "the memory in use"]
    assert len(memory) == 4
    assert "MIG-2" in memory


def test_a_port_that_has_counted_errors_is_a_warning(
    simulated: Machine, gpuwatch: Gpuwatch, tmp_path: Path
) -> None:
    """With what was counted; one that is down is said, others are counted."""
    simulated()
    folder = "sys/class/infiniband/mlx5_{}/ports/1"
    for number, state, count in ((0, "4: ACTIVE", 0), (1, "4: ACTIVE", 3), (2, "1: DOWN", 0)):
        files = {"state": state, "counters/link_downed": count, "counters/symbol_error": count}
        at = folder.format(number)
        in_root(tmp_path, **{f"{at}/{name}": f"{text}\n" for name, text in files.items()})
    ran = gpuwatch("doctor", "--json", code=WARNINGS)
    found = {one["reason"]: one["status"] for one in checks(ran) if "RoCE" in one["name"]}
    assert found == {
        "mlx5_1 port 1 has counted errors: link lost 3, symbol errors 3": "warn",
        "mlx5_2 port 1 is down": "pass",
        "1 port active, without errors": "pass",
    }


def test_under_wsl_the_driver_is_that_of_windows(
    simulated: Machine, gpuwatch: Gpuwatch, tmp_path: Path
) -> None:
    """No device of NVIDIA's and no kernel module is seen there, and nothing is wrong."""
    simulated()
    shutil.rmtree(tmp_path / "root")
    in_root(
        tmp_path,
        **{
            "proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n",
            "dev/dxg": "",
        },
    )
    shutil.rmtree(tmp_path / "root/sys")
    shutil.rmtree(tmp_path / "root/proc/driver")
    (tmp_path / "root/dev/nvidia0").unlink()
    ran = gpuwatch("doctor", "--json", code=OK)
    assert check(ran, "devices")["reason"] == "/dev/dxg (WSL)"
    assert "that of Windows" in check(ran, "versions in step")["reason"]
    assert check(ran, "kernel")["reason"].endswith(", WSL")


def test_processes_that_are_seen_here_pass(simulated: Machine, gpuwatch: Gpuwatch) -> None:
    simulated().gpu[0].processes = [GpuProcess(pid=os.getpid())]
    ran = gpuwatch("doctor", "--json", code=OK)
    assert check(ran, "processes on GPUs")["reason"] == "1 process, all seen here"
    assert check(ran, "the list of processes")["values"]["processes"] == 1


AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from gpuwatch.commands import cli, watching
from gpuwatch.commands import doctor
from gpuwatch.doctor import examination
from gpuwatch.outputs import doctor
import gpuwatch.sources.nvml.source
if "nobody" in sys.argv:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
cli.main(["doctor", "--json"])
"""


def in_namespace(*how: str, who: str, **settings: Any) -> list[Check]:
    """The checks that gpuwatch makes in other namespaces."""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:
        pytest.skip("needs to make namespaces")
    command = [unshare, *how, sys.executable, "-c", AS_NOBODY, str(ROOT), who]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, **settings
    )
    if "Operation not permitted" in done.stderr or "permission denied" in done.stderr:
        pytest.skip("may not make namespaces here")
    found: list[Check] = json.loads(done.stdout)["checks"]
    return found


def test_proc_that_hides_other_users_is_a_warning(tmp_path: Path) -> None:
    mount = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    found = in_namespace("--mount", "sh", "-c", mount, "-", who="nobody")
    (proc,) = [one for one in found if one["name"] == "/proc"]
    assert proc["status"] == "warn"
    assert "hidepid" in proc["reason"]
    assert "as root" in proc["cure"]


def test_a_machine_without_proc_is_broken_and_checked_all_the_same(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs none /proc && exec "$@"'
    found = in_namespace("--mount", "sh", "-c", mount, "-", who="root")
    (proc,) = [one for one in found if one["name"] == "/proc"]
    assert (proc["status"], proc["reason"]) == ("fail", "it is not there")
    assert {"Driver", "Terminal"} <= {one["group"] for one in found}
    assert "bug" not in json.dumps(found)


def test_pids_of_outside_the_container_are_a_warning(tmp_path: Path) -> None:
    fake = create_or_skip(tmp_path)
    fake.gpu[0].processes = [GpuProcess(pid=3_999_999)]
    how = ("--pid", "--fork", "--mount-proc")
    found = in_namespace(*how, who="root", env=fake.env(environment_in(tmp_path)))
    (seen,) = [one for one in found if one["name"] == "processes on GPUs"]
    assert seen["status"] == "warn"
    assert "from inside this container" in seen["reason"]
    assert "host's PID namespace" in seen["cure"]


def test_a_clock_that_was_set_meanwhile_is_a_warning(
    simulated: Machine, gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated()
    pairs = iter([(1000.0, 50.0), (997.0, 51.0)])
    monkeypatch.setattr(examination, "both_clocks", lambda: examination.ClockPair(*next(pairs)))
    found = check(gpuwatch("doctor", "--json", code=WARNINGS), "clock")
    assert found["reason"] == "it was set by 4 s back meanwhile"


def test_xid_errors_in_the_kernels_log_are_a_warning(
    simulated: Machine, gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "kmsg"
    log.write_text("6,1,5000000,-;NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus.\n")
    monkeypatch.setattr(machine, "KernelLog", lambda: KernelLog(log))
    simulated()
    ran = gpuwatch("doctor", "--json", code=WARNINGS)
    found = check(ran, "Xid errors")
    assert found["reason"].startswith("Xid 79 (the GPU fell off the bus), 1 time, the last ")
    assert found["target"] == ran.json["gpus"][0]["uuid"]


def test_the_terminal_is_looked_at() -> None:
    """Its size, colours and characters, and whether the session came over ssh."""
    environment = {"COLORTERM": "truecolor", "SSH_CONNECTION": "a b c d", "LANG": "C.UTF-8"}
    code, arrived = on_a_terminal("doctor", columns=100, **environment)
    assert code in (OK, WARNINGS)
    plain = " ".join(re.sub(r"\x1b\[\d+m", "", arrived).split())
    assert "pass screen 100x40, 16 million colours (TERM=xterm-256color), utf-8, over ssh" in plain
    assert "\x1b[32m✓ pass\x1b[0m" in arrived


def test_a_terminal_that_is_too_small_is_a_warning() -> None:
    _, arrived = on_a_terminal("doctor", columns=39, TERM="dumb", NO_COLOR="1", LANG="C")
    assert max(map(len, arrived.splitlines())) <= 39
    plain = " ".join(arrived.split())
    assert "! warn size" in plain
    assert "! warn TERM" in plain
    assert "\x1b" not in arrived


def test_a_check_that_breaks_takes_no_other_away(
    simulated: Machine, gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaking(_facts: object) -> Iterator[Any]:
        raise KeyError("secret of ada")

    simulated()
    monkeypatch.setattr(examination, "CHECKS", (breaking, *examination.CHECKS))
    ran = gpuwatch("doctor", "--json", code=BROKEN)
    assert "KeyError in test_doctor.py" in check(ran, "breaking")["reason"]
    assert "ada" not in check(ran, "breaking")["reason"]
    assert check(ran, "the temperature")["status"] == "pass"


@pytest.mark.parametrize("name", ["doctor.zip", "doctor.tar.gz"])
def test_a_bundle_holds_the_checks_and_a_recording_and_names_nobody(
    simulated: Machine,
    gpuwatch: Gpuwatch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """Neither the user, nor the host, nor a folder, nor what a program in the place of nvidia-smi
    prints."""
    secret = "/home/ada/bin/nvidia-smi: 3: token=hunter2"
    install_smi(tmp_path, f"echo '{secret}'; exit 1")
    simulated().gpu[0].processes = [GpuProcess(pid=os.getpid())]
    monkeypatch.setattr(doctor, "RECORDED_SECONDS", 0.0)
    monkeypatch.setenv("SSH_CONNECTION", "203.0.113.9 50022 203.0.113.1 22")
    monkeypatch.setenv("TERM", "ada-terminal@box3")
    path = tmp_path / name
    ran = gpuwatch("doctor", "--bundle", str(path), code=WARNINGS)
    assert secret in ran.words
    assert "Wrote" in ran.words
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    files = unpacked(path)
    assert set(files) == {"README.txt", "doctor.txt", "doctor.json", "recording.jsonl.zst"}
    kept = tmp_path / "recording.jsonl.zst"
    kept.write_bytes(files.pop("recording.jsonl.zst"))
    with open_any(str(kept)) as log:
        snapshots = list(log.snapshots)
    assert snapshots[0].gpus[0].identity.name == "NVIDIA H200"
    assert snapshots[0].host.name == ""
    found = {one["name"]: one for one in json.loads(files["doctor.json"])["checks"]}
    assert found["the temperature"]["status"] == "pass"
    assert "left out" in found["nvidia-smi"]["reason"]
    text = b"".join(files.values()).decode()
    for private in ("ada", "hunter2", "203.0.113", os.uname().nodename, str(tmp_path)):
        assert private not in text
    assert b"names of users" in files["README.txt"]


def unpacked(path: Path) -> dict[str, bytes]:
    """The files of an archive by their names; all are in one folder."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as zipped:
            whole = {name: zipped.read(name) for name in zipped.namelist()}
    else:
        with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as tar:
            members = tar.getmembers()
            assert {(member.uname, member.uid) for member in members} == {("", 0)}
            opened = [(member.name, tar.extractfile(member)) for member in members]
            whole = {name: file.read() for name, file in opened if file is not None}
    assert {name.partition("/")[0] for name in whole} == {"doctor"}
    return {name.partition("/")[2]: data for name, data in whole.items()}


def test_json_stays_json_when_a_bundle_is_written(
    simulated: Machine, gpuwatch: Gpuwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated()
    monkeypatch.setattr(doctor, "RECORDED_SECONDS", 0.0)
    ran = gpuwatch("doctor", "--json", "--bundle", str(tmp_path / "b.zip"), code=OK)
    assert ran.json["kind"] == "doctor"
    assert "Wrote" in ran.err


def test_a_bundle_that_was_asked_for_is_not_recommended(
    simulated: Machine, gpuwatch: Gpuwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint for a bug report is for those who did not ask for a bundle, and not in one."""
    simulated(preset="rtx4090").fault("nvmlDeviceGetFanSpeed", "UNKNOWN")
    monkeypatch.setattr(doctor, "RECORDED_SECONDS", 0.0)
    ran = gpuwatch("doctor", "--bundle", str(tmp_path / "b.zip"), code=WARNINGS)
    assert "For a bug report" not in ran.out
    assert "Wrote" in ran.out


def test_a_bundle_is_named_by_its_kind(gpuwatch: Gpuwatch) -> None:
    ran = gpuwatch("doctor", "--bundle", "report", code=2)
    assert "name it report.zip" in ran.err


def test_a_bundle_that_cannot_be_written_ends_with_74(
    simulated: Machine, gpuwatch: Gpuwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, before the checks and the recording."""
    simulated()
    monkeypatch.setattr(doctor, "RECORDED_SECONDS", 0.0)
    ran = gpuwatch("doctor", "--bundle", str(tmp_path / "none" / "b.zip"), code=74)
    assert "cannot be written" in ran.err
    assert ran.out == ""
