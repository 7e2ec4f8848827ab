"""Each check: what it says of a machine that is spoilt in one place, and that it is silent on a healthy one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.doctor.made import GB, healthy, said, spoilt
from xttsbench.doctor import CHECKS, examine
from xttsbench.records.machine import Computed, Gpu, Place

NO_LIBRARY = {"libcudnn.so.9": "libcudnn.so.9: cannot open shared object file: No such file or directory"}


@pytest.mark.parametrize("gpus", [0, 1, 4])
def test_a_healthy_machine_has_nothing_broken_and_no_gpu_is_a_note(gpus) -> None:
    found = {check.id: check for check in examine(healthy(gpus=gpus))}
    assert {check.id for check in found.values() if check.status != "ok"} == ({"gpu-driver"} if not gpus else set())
    assert all(not check.remedy for check in found.values())
    if not gpus:
        assert found["gpu-driver"].status == "note"
        assert "no NVIDIA driver" in found["gpu-driver"].seen
        assert {name for name in found if name.startswith("gpu-")} == {"gpu-driver"}


def test_every_check_has_its_row_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == list(CHECKS)


def test_figures_are_plain() -> None:
    for check in examine(healthy(gpus=2)):
        assert "nan" not in str(check.figures)


FAULTS: list[tuple[str, dict[str, Any], str, str, str, str]] = [
    ("software", {"variables": {"CUDA_VISIBLE_DEVICES": "-1"}}, "gpu-mask", "broken", "shows 0 of 2", "unset CUDA_"),
    ("software", {"variables": {"CUDA_VISIBLE_DEVICES": ""}}, "gpu-mask", "broken", "''", "CUDA_VISIBLE_DEVICES=0"),
    ("software", {"variables": {"CUDA_VISIBLE_DEVICES": "7,0"}}, "gpu-mask", "broken", "shows 0 of 2", "unset"),
    ("software", {"packages": {"tensorflow": "2.15.0"}}, "versions", "broken", "2.15.0", "pip install 'tensorflow==2"),
    ("software", {"python": "3.9.2"}, "versions", "broken", "3.9.2", "Python 3.11"),
    ("software", {"builds": ("tensorflow", "tensorflow-cpu")}, "versions", "broken", "overwrites", "pip uninstall -y"),
    ("software", {"variables": {"KERAS_BACKEND": "torch"}}, "versions", "note", "'torch'", "Unset KERAS_BACKEND"),
    ("software", {"variables": {"OMP_NUM_THREADS": "1"}}, "threads", "note", "NumPy's", "Unset OMP_NUM_THREADS"),
    ("software", {"variables": {"TF_NUM_INTRAOP_THREADS": "64"}}, "threads", "note", "64 on 8", "set it to 8"),
    (
        "driver",
        {"gpus": (Gpu(index=1, name="unknown", lost="NVML: GPU is lost"),)},
        *("gpu-driver", "broken", "GPU 1 does not answer (NVML: GPU is lost)", "xid"),
    ),
    ("driver", {"refused": {"/dev/nvidiactl": "Permission denied"}}, "gpu-permission", "broken", "nvidiactl", "video"),
    (
        "driver",
        {"gpus": (), "reason": "NVML: Insufficient Permissions", "refused": {"/dev/nvidia0": "Permission denied"}},
        *("gpu-permission", "broken", "/dev/nvidia0 (Permission denied)", "in a container, pass all of them"),
    ),
    ("driver", {"gpus": (), "reason": "still busy after 20 s", "ill": True}, "gpu-driver", "broken", "busy", "restart"),
    ("driver", {"gpus": (), "reason": "no NVIDIA driver"}, "gpu-driver", "broken", "sits at 0000:00:00.0", "Install"),
    (
        "driver",
        {"gpus": (), "reason": "no NVIDIA driver", "pci": {"0000:01:00.0": "nouveau"}},
        *("gpu-driver", "broken", "is nouveau", "replaces nouveau"),
    ),
    (
        "driver",
        {"gpus": (), "reason": "NVML cannot be initialised: Driver/library version mismatch"},
        *("gpu-driver", "broken", "mismatch", "restart the machine"),
    ),
    ("driver", {"gpus": (), "reason": "no driver", "container": True}, "gpu-driver", "broken", "sits", "--gpus all"),
    (
        "driver",
        {"gpus": (Gpu(index=0, name="A", memory_total_bytes=16 * GB, memory_used_bytes=15 * GB, processes=3),)},
        *("gpu-memory", "broken", "GPU 0: 15.0 GiB of 16.0 GiB", "nvidia-smi"),
    ),
    ("sight", {"built_with_cuda": False, "gpus": ()}, "gpu-build", "broken", "CPU build beside 2 GPU(s)", "and-cuda"),
    (
        "sight",
        {"missing": NO_LIBRARY, "gpus": ()},
        "gpu-libraries",
        "broken",
        "libcudnn.so.9 (cannot",
        "and-cuda",
    ),
    ("sight", {"missing": NO_LIBRARY}, "gpu-libraries", "ok", "all that a GPU needs", ""),
    (
        "sight",
        {"gpus": (), "complaint": "CUDA_ERROR_UNKNOWN: unknown error"},
        *("gpu-visible", "broken", "sees 0 of 2 GPU(s): CUDA says CUDA_ERROR_UNKNOWN", "nvidia-modprobe"),
    ),
    (
        "sight",
        {"stage": "import", "ended": "killed by SIGILL", "computed": (), "last_words": "Illegal instruction"},
        *("tensorflow-starts", "broken", "its last words: Illegal instruction", "AVX"),
    ),
    (
        "sight",
        {"stage": "import", "ended": "still busy after 9 s", "computed": ()},
        *("tensorflow-starts", "broken", "'import tensorflow': still busy after 9 s", "faulthandler"),
    ),
    ("sight", {"import_s": 61.0}, "tensorflow-starts", "note", "61.0 s", "local disk"),
    (
        "sight",
        {"computed": (Computed(device="GPU:0", value=3679.0, expected=3680.0),)},
        *("xla", "broken", "gave 3679.0 where 3680 is right", "ECC"),
    ),
    (
        "sight",
        {"computed": (Computed(device="GPU:0", expected=3680.0, error="libdevice not found at ./libdevice.10.bc"),)},
        *("xla", "broken", "libdevice not found", "nvidia-cuda-nvcc-cu12"),
    ),
    (
        "sight",
        {"stage": "xla", "ended": "killed by SIGSEGV", "computed": ()},
        *("xla", "broken", "killed by SIGSEGV", "jit_compile"),
    ),
    ("processors", {"quota_cpus": 1.5}, "cpu-quota", "broken", "1.5 of 8 visible", "TF_NUM_INTRAOP_THREADS=1"),
    ("processors", {"quota_cpus": 6.0}, "cpu-quota", "note", "6 of 8 visible", "TF_NUM_INTEROP_THREADS=6"),
    ("processors", {"steal_share": 0.3}, "neighbours", "broken", "the hypervisor 30%", "oversold"),
    ("processors", {"foreign_share": 0.6}, "neighbours", "note", "processes 60%", "top"),
    ("processors", {"foreign_share": 0.15}, "neighbours", "note", "15%", "top"),
    ("processors", {"steal_share": None}, "neighbours", "unknown", "/proc/stat", ""),
    ("memory", {"available_bytes": GB // 2}, "memory", "broken", "512 MiB left of 32.0 GiB", "ps aux"),
    ("memory", {"available_bytes": 3 * GB}, "memory", "note", "3.00 GiB left", "buffers"),
    (
        "memory",
        {"limit_bytes": 2 * GB, "limit_left_bytes": GB // 2},
        *("memory", "broken", "the control group's 2.00 GiB", "container's memory limit"),
    ),
    ("memory", {"limit_bytes": 2 * GB, "limit_left_bytes": 0}, "memory", "broken", "0 B left", "memory limit"),
    ("memory", {"swapped_bytes_per_s": 5e7}, "memory", "broken", "47.7 MiB/s go to and from swap", "ps aux"),
    (
        "memory",
        {"shared_total_bytes": 64 << 20, "shared_free_bytes": 60 << 20},
        "shared-memory",
        "broken",
        "60.0 MiB",
        "--",
    ),
    ("memory", {"shared_free_bytes": 500 << 20}, "shared-memory", "note", "500 MiB free", "--shm-size"),
    (
        "memory",
        {"shared_free_bytes": None, "unmeasured": {"shared_free_bytes": "Permission denied"}},
        *("shared-memory", "broken", "Permission denied", "--shm-size"),
    ),
    (
        "places",
        {"places": (Place(what="runs", path="/r", free_bytes=0, refused="No space left on device"),)},
        *("disk-space", "broken", "runs /r: a file of 16 MB cannot be made there (No space left", "Make room"),
    ),
    (
        "places",
        {"places": (Place(what="runs", path="/r", free_bytes=GB),)},
        "disk-space",
        "note",
        "1.00 GiB free",
        "Make",
    ),
    (
        "places",
        {"places": (Place(what="runs", path="/r", free_bytes=GB, free_files=3),)},
        *("disk-space", "broken", "3 more files", "inodes"),
    ),
]


@pytest.mark.parametrize(("part", "fields", "name", "status", "seen", "remedy"), FAULTS)
def test_a_fault_is_recognised_with_its_remedy(part, fields, name, status, seen, remedy) -> None:
    found = said(spoilt(healthy(gpus=2), part, **fields), name)
    assert found is not None
    assert (found.status, found.seen.count("\n")) == (status, 0)
    assert seen in found.seen
    assert remedy in found.remedy
    assert bool(found.remedy) == (status in ("broken", "note"))


@pytest.mark.parametrize(("part", "fields", "name", "status", "seen", "remedy"), FAULTS)
def test_a_fault_is_said_once(part, fields, name, status, seen, remedy) -> None:
    """What explains a missing GPU is not said again as a missing GPU."""
    broken = [check.id for check in examine(spoilt(healthy(gpus=2), part, **fields)) if check.status == "broken"]
    assert broken == ([name] if status == "broken" else [])


def test_a_mask_keeps_tensorflow_from_trying_libraries() -> None:
    machine = spoilt(healthy(gpus=2), "software", variables={"CUDA_VISIBLE_DEVICES": "-1"})
    machine = spoilt(machine, "sight", gpus=())
    assert [check.id for check in examine(machine) if check.status == "broken"] == ["gpu-mask"]
    libraries = said(machine, "gpu-libraries")
    assert libraries is not None
    assert libraries.status == "unknown"


def test_an_old_driver_is_named_where_no_gpu_is_seen() -> None:
    """With the compatibility package of CUDA an old driver may do."""
    machine = spoilt(healthy(gpus=1), "driver", version="470.199.02")
    assert not [check for check in examine(machine) if check.status != "ok"]
    broken = [check for check in examine(spoilt(machine, "sight", gpus=())) if check.status == "broken"]
    assert [check.id for check in broken] == ["gpu-driver"]
    assert "driver 470.199.02 is older than 525.60.13" in broken[0].seen
    assert "Update the NVIDIA driver to 525.60.13" in broken[0].remedy


def test_a_mask_that_shows_a_gpu_is_fine() -> None:
    machine = spoilt(healthy(gpus=2), "software", variables={"CUDA_VISIBLE_DEVICES": "1"})
    assert {check.status for check in examine(spoilt(machine, "sight", gpus=("GPU:0",)))} == {"ok"}


def test_threads_that_were_set_to_the_quota_are_its_remedy() -> None:
    machine = spoilt(healthy(), "processors", quota_cpus=2.0)
    machine = spoilt(machine, "sight", threads={"intra_op": 2, "inter_op": 2})
    machine = spoilt(machine, "software", variables={"TF_NUM_INTRAOP_THREADS": "2", "TF_NUM_INTEROP_THREADS": "2"})
    assert {check.id for check in examine(machine) if check.status != "ok"} == {"gpu-driver"}
