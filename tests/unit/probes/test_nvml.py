"""The real NVML bindings in a process of their own, against a stub of the driver's library that is compiled here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from xttsbench.analysis.readings import beside_profile
from xttsbench.probes.nvml import PCIE_EVERY
from xttsbench.records.readings import REASONS, GpuActivity, GpuDevice, GpuReadings, Readings, throttle_reason_names

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc, gcc, clang) to build the NVML stub")

EPOCH_US = 1_700_000_000_000_000
"""Time of the first of the stub's five samples."""
WALL_NS = EPOCH_US * 1000 + 30_000_000
"""Wall time at the probe's start: the samples at 0 and 20 ms are from before it."""
PERF_NS = 5_000_000_000

DRIVER = """
import json, sys
from xttsbench.probes.nvml import open_gpus
perf, wall, rounds, restarts = (int(argument) for argument in sys.argv[1:])
passed = 0
probe, reason = open_gpus(clock=lambda: perf + passed, wall=lambda: wall + passed)
if probe is None:
    print(json.dumps({"reason": reason}))
    raise SystemExit
out = {"reason": reason, "driver": probe.driver_version}
for _ in range(rounds):
    passed += 200_000_000
    probe.sample()
out["gpus"] = [gpu.model_dump() for gpu in probe.readings()]
for _ in range(restarts):
    probe.restart()
out["after_restart"] = [gpu.model_dump() for gpu in probe.readings()]
probe.close()
probe.close()
print(json.dumps(out))
"""


def build(directory: Path, *flags: str) -> Path:
    assert COMPILER is not None
    source = Path(__file__).with_name("nvml_stub.c")
    library = directory / "libnvidia-ml.so.1"
    subprocess.run([COMPILER, "-shared", "-fPIC", *flags, "-o", str(library), str(source)], check=True)
    return directory


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="module")
def old_stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml_old"), "-DOLD_DRIVER")


def drive(library: Path, mode: str = "", *, rounds: int = 2, restarts: int = 0) -> dict[str, Any]:
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(library),
        "NVML_STUB": mode,
        "NVML_STUB_EPOCH_US": str(EPOCH_US),
    }
    arguments = [str(number) for number in (PERF_NS, WALL_NS, rounds, restarts)]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@needs_compiler
def test_every_number_of_a_gpu_that_gives_all(stub: Path) -> None:
    result = drive(stub)
    gpu = result["gpus"][0]
    assert result["driver"] == "550.54.15"
    assert (gpu["index"], gpu["name"], gpu["uuid"]) == (0, "Stub GPU A", "GPU-a")
    assert gpu["t_ns"] == [PERF_NS + 200_000_000, PERF_NS + 400_000_000]
    assert gpu["memory_total_bytes"] == 16_000_000_000
    assert gpu["memory_used_bytes"] == [2000, 3000]  # the first call was for the total
    assert gpu["sm_clock_mhz"] == [1410, 1410]
    assert gpu["max_sm_clock_mhz"] == 1980
    assert gpu["memory_clock_mhz"] == [1593, 1593]
    assert gpu["throttle_reasons"] == [0x44, 0x44]
    assert gpu["power_w"] == [312.5, 312.5]
    assert gpu["pcie_rx_bytes_per_s"] == [5000 * 1024, None]
    assert gpu["pcie_tx_bytes_per_s"] == [70 * 1024, None]
    assert gpu["processes"] == [1234, 4321]
    assert gpu["unmeasured"] == {}


@needs_compiler
def test_the_drivers_samples_are_on_the_clock_of_the_steps_once_each_and_only_since_the_start(stub: Path) -> None:
    gpu = drive(stub, rounds=3)["gpus"][0]
    # 40, 60 and 80 ms after the first of the buffer, which is 30 ms before the probe's start.
    assert gpu["utilization_t_ns"] == [PERF_NS + ms * 1_000_000 for ms in (10, 30, 50)]
    assert gpu["utilization"] == [0.6, 0.8, 1.0]


@needs_compiler
def test_the_drivers_samples_lie_beside_a_profiled_window_on_its_clock(stub: Path) -> None:
    readings = Readings(gpus=tuple(GpuReadings(**gpu) for gpu in drive(stub, rounds=3)["gpus"]))
    nothing = dict.fromkeys(("kernel_s", "collective_s", "copy_s", "collective_alone_s", "copy_alone_s", "idle_s"), 0.0)
    activity = GpuActivity(
        steps=1,
        step_s=0.03,
        start_ns=PERF_NS + 5_000_000,
        step_ends_ns=(PERF_NS + 35_000_000,),
        devices=(GpuDevice(index=0, **nothing), GpuDevice(index=1, **nothing)),
    )
    first, second = beside_profile(activity, readings)
    assert (first["samples"], first["utilization"]) == (2, pytest.approx(0.7))  # those at 10 and at 30 ms
    assert (second["utilization"], second["unmeasured"]["utilization"]) == (None, "NVML: Not Supported")


@needs_compiler
def test_what_a_gpu_does_not_give_is_empty_with_the_reason_and_the_rest_goes_on(stub: Path) -> None:
    gpu = drive(stub)["gpus"][1]
    assert (gpu["name"], gpu["uuid"], gpu["memory_total_bytes"]) == ("Stub GPU B", "GPU-b", 8_000_000_000)
    assert gpu["memory_used_bytes"] == [123, 123]
    assert gpu["sm_clock_mhz"] == [1410, 1410]
    assert gpu["throttle_reasons"] == [0, 0]  # measured: nothing holds the clocks back
    missing = {"memory_clock_mhz", "power_w", "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "utilization"}
    assert all(gpu[field] == [] for field in missing)
    missing |= {"max_sm_clock_mhz"}
    assert gpu["max_sm_clock_mhz"] is None
    assert {field: gpu["unmeasured"][field] for field in missing} == dict.fromkeys(missing, "NVML: Not Supported")
    assert gpu["processes"] == []
    assert gpu["unmeasured"]["processes"] == "NVML: Insufficient Permissions"
    assert set(gpu["unmeasured"]) == missing | {"processes"}


@needs_compiler
def test_the_bus_is_asked_for_in_turns(stub: Path) -> None:
    gpu = drive(stub, rounds=PCIE_EVERY + 2)["gpus"][0]
    asked = [value is not None for value in gpu["pcie_rx_bytes_per_s"]]
    assert asked == [True] + [False] * (PCIE_EVERY - 1) + [True, False]


@needs_compiler
def test_a_restart_begins_empty_and_keeps_what_was_learnt(stub: Path) -> None:
    gpus = drive(stub, restarts=1)["after_restart"]
    assert [gpu["t_ns"] for gpu in gpus] == [[], []]
    assert gpus[0]["utilization"] == gpus[0]["memory_used_bytes"] == []
    assert gpus[0]["unmeasured"]["memory_used_bytes"] == "no sample was taken"
    assert gpus[1]["unmeasured"]["power_w"] == "NVML: Not Supported"
    assert gpus[1]["name"] == "Stub GPU B"


@needs_compiler
def test_an_old_driver_is_asked_by_the_old_names(old_stub: Path) -> None:
    gpu, other = drive(old_stub)["gpus"]
    assert gpu["throttle_reasons"] == [0x8, 0x8]
    assert other["throttle_reasons"] == [0x1, 0x1]
    assert gpu["processes"] == [99]
    assert gpu["unmeasured"] == {}


@needs_compiler
def test_a_lost_gpu_does_not_take_the_other_along(stub: Path) -> None:
    gpu, lost = drive(stub, "lost")["gpus"]
    assert gpu["unmeasured"] == {}
    assert lost["name"] == "unknown"
    assert lost["memory_total_bytes"] is None
    assert lost["memory_used_bytes"] == lost["utilization"] == []
    assert lost["unmeasured"]["power_w"] == lost["unmeasured"]["name"] == "NVML: GPU is lost"


@needs_compiler
@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("not_loaded", "the NVIDIA driver is installed but not loaded"),
        ("no_gpus", "the NVIDIA driver lists no GPU"),
    ],
)
def test_no_probe_but_the_reason(stub: Path, mode: str, reason: str) -> None:
    assert drive(stub, mode) == {"reason": reason}


@needs_compiler
def test_the_environment_names_the_gpus(stub: Path) -> None:
    code = "import json; from xttsbench.probes.environment import environment; print(json.dumps(environment()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"LD_LIBRARY_PATH": str(stub), "NVML_STUB": "", "NVML_STUB_EPOCH_US": str(EPOCH_US)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["gpu_driver"] == "550.54.15"
    assert found["gpus"][0] == {
        "index": 0,
        "name": "Stub GPU A",
        "uuid": "GPU-a",
        "memory_total_bytes": 16_000_000_000,
        "memory_used_before_bytes": 2000,
        "processes_before": 2,
    }
    assert found["gpus"][1]["processes_before"] is None
    assert "Permissions" in found["unmeasured"]["gpus.1.processes_before"]
    assert "gpus" not in found["unmeasured"]


@needs_compiler
def test_a_missing_driver_is_the_reason(tmp_path: Path) -> None:
    # A file of that name that is no library comes first on the path, so that this holds on a machine with a driver
    # too: the loader refuses it and does not look further.
    (tmp_path / "libnvidia-ml.so.1").write_text("")
    assert drive(tmp_path) == {"reason": "no NVIDIA driver (libnvidia-ml.so.1 was not found)"}


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (0, ()),
        (0x1, ("gpu_idle",)),
        (0x44, ("sw_power_cap", "hw_thermal_slowdown")),
        (0x88, ("hw_slowdown", "hw_power_brake_slowdown")),
        (1 << 40, ("bit_40",)),
    ],
)
def test_throttle_reasons_have_names(mask: int, names: tuple[str, ...]) -> None:
    assert throttle_reason_names(mask) == names


def test_the_bits_are_those_of_nvidias_bindings() -> None:
    prefix = "nvmlClocksThrottleReason"
    values = {getattr(pynvml, name) for name in dir(pynvml) if name.startswith(prefix)}
    assert {value for value in values if value.bit_count() == 1} == set(REASONS)
    for name in (
        "SwPowerCap",
        "HwThermalSlowdown",
        "SwThermalSlowdown",
        "HwPowerBrakeSlowdown",
        "HwSlowdown",
        "GpuIdle",
    ):
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
        assert REASONS[getattr(pynvml, prefix + name)] == snake
