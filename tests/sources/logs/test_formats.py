"""Logs in other forms than rows of ``nvidia-smi``: each is read as what it says, and no more."""

import json
from typing import Any

import pytest

from gpuwatch.core.model import Snapshot
from gpuwatch.sources.logs.headings import parse_columns
from gpuwatch.sources.logs.text import LogError, LogStats
from tests.sources.smi_writing import MIB, read

TABLE = """\
Thu Jan 30 09:15:{second:02d} 2025
| NVIDIA-SMI 560.35.03              Driver Version: 560.35.03      CUDA Version: 12.6     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|   0  NVIDIA A100 80GB PCIe          On  |   00000000:21:00.0 Off |                    0 |
| N/A   43C    P0             66W /  300W |    8530MiB /  81920MiB |     {busy}%      Default |
|   1  NVIDIA GeForce RTX 30...    WDDM  |   00000000:41:00.0 Off |                   On |
| 30%   51C    P2             20W /   N/A |                  N/A   |     N/A      Default |
|                                         |                        |              Enabled |

| MIG devices:                                                                            |
|  1    7   0   2  |              13MiB /  9728MiB    | 14      0 |  1   0    0    0    0 |
|                  |                 0MiB / 16383MiB  |           |                       |
| Processes:                                                                              |
|    0   N/A  N/A            4242      C   ...envs/torch/bin/python               8520MiB |
+-----------------------------------------------------------------------------------------+
"""
OLD_TABLE = """\
==== Sun Dec  4 09:11:{second:02d} AM EST 2022 ====
| NVIDIA-SMI 390.57       Driver Version: 390.57                              |
|   0  Tesla V100-SXM2...  On   | 00000000:3A:00.0 Off |                    0 |
| N/A   39C    P0    64W / 300W |  14778MiB / 32510MiB |     {busy}%      Default |
|    0     69153      C   python train.py                            14773MiB |
+-----------------------------------------------------------------------------+
"""
REPORT = """\
==============NVSMI LOG==============

Timestamp                                 : Sat May 10 03:38:{second:02d} 2025
Attached GPUs                             : 1
GPU 00000000:3A:00.0
    Product Name                          : NVIDIA L4
    GPU UUID                              : GPU-1234abcd
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
    FB Memory Usage
        Used                              : 8530 MiB
    BAR1 Memory Usage
        Used                              : 5 MiB
    Utilization
        Gpu                               : {busy} %
    GPU Power Readings
        Power Draw                        : 66.00 W
    Module Power Readings
        Power Draw                        : 999.00 W
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4242
            Type                          : C
            Name                          : python
"""
XML = """\
<?xml version="1.0" ?>
<nvidia_smi_log>
\t<timestamp>Sat May 10 03:38:{second:02d} 2025</timestamp>
\t<gpu id="00000000:3A:00.0">
\t\t<uuid>GPU-1234abcd</uuid>
\t\t<fb_memory_usage>
\t\t\t<used>8530 MiB</used>
\t\t</fb_memory_usage>
\t\t<utilization><gpu_util>{busy} %</gpu_util><memory_util>21 %</memory_util></utilization>
\t\t<clocks_event_reasons>
\t\t\t<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
\t\t</clocks_event_reasons>
\t\t<gpu_power_readings>
\t\t\t<average_power_draw>50.00 W</average_power_draw>
\t\t\t<instant_power_draw>66.00 W</instant_power_draw>
\t\t</gpu_power_readings>
\t\t<processes>
\t\t\t<process_info><pid>4242</pid><process_name>python</process_name></process_info>
\t\t</processes>
\t</gpu>
</nvidia_smi_log>
"""
GPUSTAT = """\
{{
  "query_time": "2025-01-30T09:15:{second:02d}.500000",
  "gpus": [
    {{
      "index": 0, "uuid": "GPU-1234abcd", "temperature.gpu": 43, "fan.speed": null,
      "utilization.gpu": {busy}, "power.draw": 66, "memory.used": 8530,
      "processes": [
        {{"username": "ada", "command": "python", "gpu_memory_usage": 8520, "pid": 4242}}
      ]
    }}
  ]
}}
"""
METRICS = """\
# date 2025
2025-01-30 09:15:{second:02d}
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-1234abcd",modelName="NVIDIA L4"}} {busy}
DCGM_FI_DEV_FB_USED{{gpu="0",UUID="GPU-1234abcd",modelName="NVIDIA L4"}} 8530
DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-1234abcd",modelName="NVIDIA L4"}} 66.0
DCGM_FI_DEV_XID_ERRORS{{gpu="0",UUID="GPU-1234abcd",modelName="NVIDIA L4"}} 0
"""


DOCUMENTS = (TABLE, OLD_TABLE, REPORT, XML, GPUSTAT, METRICS)


def over_time(document: str) -> list[Snapshot]:
    """Three of them, 2 s apart, whose GPU is busier each time."""
    documents = [document.format(second=2 * i, busy=10 * (i + 1)) for i in range(3)]
    return read("".join(documents))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_printed_again_and_again_is_a_log(document: str) -> None:
    """Each is a moment, with the time that it says, the GPUs and their processes."""
    found = over_time(document)
    assert [one.gpus[0].reading.busy_percent for one in found] == [10.0, 20.0, 30.0]
    assert found[2].taken_at_unix_seconds - found[0].taken_at_unix_seconds == 4.0
    reading = found[1].gpus[0].reading
    memory = 14778 if document is OLD_TABLE else 8530
    assert reading.memory_used_bytes == memory * MIB
    assert reading.power_watts == (64.0 if document is OLD_TABLE else 66.0)
    if document is not METRICS:
        (process,) = found[1].processes
        assert process.pid == (69153 if document is OLD_TABLE else 4242)
        assert "python" in (process.name or "")
        assert process.gpu_uuid == found[1].gpus[0].uuid
    if document in {REPORT, XML}:
        assert reading.throttle_reasons == ("sw_power_cap",)


def test_the_table_has_mig_instances_and_unknown_values() -> None:
    """An instance is a GPU of its own of which only the memory is known; N/A is none."""
    card, other, instance = over_time(TABLE)[0].gpus
    assert (card.identity.name, card.identity.pci_bus_id) == (
        "NVIDIA A100 80GB PCIe",
        "00000000:21:00.0",
    )
    assert (other.reading.busy_percent, other.reading.power_limit_watts) == (None, None)
    assert (other.reading.fan_percent, other.reading.power_watts) == (30.0, 20.0)
    assert instance.identity.mig_instance == 2
    assert instance.identity.mig_parent_uuid == other.uuid
    assert (instance.reading.busy_percent, instance.reading.memory_used_bytes) == (None, 13 * MIB)


def test_a_table_before_a_log_of_rows_is_no_log() -> None:
    """What a script prints first; its time is not that of all rows after it."""
    rows = "index, utilization.gpu [%]\n" + "0, 90 %\n" * 5
    stats = LogStats()
    found = read(TABLE.format(second=0, busy=7) + rows, stats)
    assert [one.gpus[0].reading.busy_percent for one in found] == [90.0] * 5
    assert found[4].monotonic_seconds - found[1].monotonic_seconds == 3.0


DCGMI = """\
#Entity   GPUTL   SMACT   DRAMA   POWER
ID                                W
GPU 0     92      0.978   0.334   312.5
GPU 1     N/A     0.006   0.000   71.0
"""
WANDB = """\
_runtime,_timestamp,system.gpu.0.gpu,system.gpu.1.gpu,system.gpu.1.powerWatts,loss
2.0,1738228502.0,92,12,71.0,0.5
"""
TIDY = "GPUId,TimeStampUs,Field,Values\n" + "".join(
    f"{gpu},{1738228500000000 + 250000 * step + gpu},{field},{value}\n"
    for gpu, power in ((0, 312.5), (1, 71.0))
    for step in range(12)
    for field, value in (("power_usage", power), ("gpu_temp", 9223372036854775794))
)


def per_gpu(text: str, field: str) -> list[Any]:
    return [getattr(gpu.reading, field) for gpu in read(text)[0].gpus]


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        (DCGMI, "busy_percent", [92.0, None]),
        (DCGMI, "sm_active_percent", [pytest.approx(97.8), pytest.approx(0.6)]),
        (WANDB, "busy_percent", [92.0, 12.0]),
        (WANDB, "power_watts", [None, 71.0]),
        (TIDY, "power_watts", [312.5, 71.0]),
        (TIDY, "temperature_celsius", [None, None]),
        (
            json.dumps({"_timestamp": 1738228502.0, "system.gpu.0.gpu": 92}) + "\n",
            "busy_percent",
            [92.0],
        ),
        ('Time,"DCGM_FI_DEV_GPU_UTIL{gpu=""1""}"\n2025-01-30 09:15:00,7\n', "busy_percent", [7.0]),
        ("timestamp,gpu0_util,gpu1_util\n1738228500,5,6\n", "busy_percent", [5.0, 6.0]),
    ],
)
def test_several_gpus_are_told_apart(text: str, field: str, expected: list[Any]) -> None:
    """By a row, a column, a label or a key for each; blanks are none, shares are percent."""
    assert per_gpu(text, field) == expected


@pytest.mark.parametrize(
    ("heading", "row", "busy", "seconds"),
    [
        ("Time,GPU_ID,Utilization", "1738228500.75,0,42", 42.0, 1738228500.75),
        ("timestamp,gpu_utilization,memory_used", "1738228500123, 42, 9", 42.0, 1738228500.123),
        ("elapsed_sec,gpu_util_pct,power_w", '2.5,42,"66.00\n0"', 42.0, 2.5),
        ("# Started\n\ntimestamp,vram_used_mb,GPU Util (%)", "1738228500,9,42", 42.0, 1738228500.0),
        ("time_ms,nvidia_smi_utilization_gpu_ratio", "1738228500000,0.42", 42.0, 1738228500.0),
        ("Date,Time,Utilization,Memory Max", "03-11-2025,10:00:01,42,900", 42.0, 36001.0),
        ("timestamp,gpu,index,utilization.gpu", "1738228500,3,0,42", 42.0, 1738228500.0),
    ],
)
def test_headings_in_anybody_s_words_are_read(
    heading: str, row: str, busy: float, seconds: float
) -> None:
    """Where they leave no doubt; with text before them, times of any kind, values over lines."""
    (snapshot,) = read(f"{heading}\n{row}\n")
    assert snapshot.gpus[0].reading.busy_percent == busy
    assert snapshot.taken_at_unix_seconds == pytest.approx(seconds)


def test_columns_in_doubt_are_left_out_and_named() -> None:
    """A share of the memory, or of the time that it was busy? A size without a unit?"""
    stats = LogStats()
    (found,) = read("timestamp,gpu_util,memory_utilization,gpu_mem\n1738228500,42,7,9\n", stats)
    assert found.gpus[0].reading.memory_controller_percent is None
    assert found.gpus[0].reading.memory_used_bytes is None
    assert any("left out: memory_utilization, gpu_mem" in note for note in stats.notes)


@pytest.mark.parametrize(
    "text",
    [
        "time,temperature,power\n1,20,3\n" * 3,
        '{"loss": 0.5, "name": "run"}\n' * 3,
        "epoch,loss,accuracy\n1,0.5,0.9\n" * 3,
        "GPU,VRAM,Purchase_USD\nNVIDIA H100,80,32000\n",
        "time,gpu_load\n1,0.5\n2,1.0\n",
        "\x1b[H\x1b[2JEvery 2.0s: nvidia-smi\n",
        "| npu-smi 24.1.rc3       Version: 24.1.rc3 |\n",
    ],
)
def test_what_is_not_about_gpus_is_refused(text: str) -> None:
    """Rather than guessed into columns."""
    with pytest.raises(LogError):
        read(text)


def test_gpus_one_after_the_other_are_to_be_sorted() -> None:
    """All of one and then all of the next."""
    rows = [f"{gpu},{second}.5,{50 * gpu + second}" for gpu in (0, 1) for second in range(10)]
    text = "\n".join(["gpu_id,time_s,gpu_util", *rows, ""])
    with pytest.raises(LogError, match="sort"):
        read(text)


def test_shares_without_a_unit_are_asked_for() -> None:
    """They could be shares of 1 or of 100."""
    text = "gpu_id,time_s,sm_active\n" + "0,1.5,0.14\n" * 3
    with pytest.raises(LogError, match="name its 3 columns"):
        read(text)
    columns = "index,elapsed,sm.active [ratio]"
    active = read(text, columns=parse_columns(columns))[0].gpus[0].reading.sm_active_percent
    assert active == pytest.approx(14.0)
