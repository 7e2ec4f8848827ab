"""What is read of a machine: made-up file systems, real control groups and file systems where they can be made."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from benchmarks.noise.neighbours import NotPossibleError, beside
from tests.unit.doctor.made import healthy, said
from xttsbench.probes import machine
from xttsbench.records.machine import Check

ROOT = Path(__file__).parents[3]
QUOTA = "from xttsbench.probes.machine import *; print(processors_and_swap(0.0)[0].model_dump_json())"
PLACE = "import sys; from xttsbench.probes.machine import *; print(place('runs', Path(sys.argv[1])).refused)"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def run(prefix: list[str], code: str, *arguments: str) -> str:
    command = [*prefix, sys.executable, "-c", code, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout


def judged(name: str, **read: Any) -> Check:
    """What the check of that name says of a machine that is healthy but for what was read here."""
    check = said(healthy().model_copy(update=read), name)
    assert check is not None
    return check


def stat(busy: int, steal: int, idle: int) -> str:
    return f"cpu  0 0 0 0\ncpu{min(os.sched_getaffinity(0))} {busy} 0 0 {idle} 0 0 0 {steal} 0 0\n"


def test_neighbours_are_what_is_busy_and_not_ours(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    root = write(tmp_path, {"proc/stat": stat(100, 10, 100), "proc/vmstat": "pswpin 5\npswpout 1\n"})

    def passes(_: float) -> None:
        write(tmp_path, {"proc/stat": stat(160, 30, 120), "proc/vmstat": "pswpin 15\npswpout 1\n"})

    ticks, used = iter((0.0, 1.0)), iter((1.0, 1.1))
    found, swapped = machine.processors_and_swap(
        1.0, root=root, clock=lambda: next(ticks), sleep=passes, own_cpu_s=lambda: next(used)
    )
    assert found.steal_share == pytest.approx(0.2)
    assert found.foreign_share == pytest.approx(0.5)  # 0.6 s busy, 0.1 s of it ours, of 1 s
    assert swapped == 10 * os.sysconf("SC_PAGE_SIZE")


def test_a_quota_and_memory_limits_are_read_from_the_group(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=8_192_000_000, available=6_144_000_000))
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job",
            "sys/fs/cgroup/job/cpu.max": "50000 100000",
            "sys/fs/cgroup/job/memory.max": "1073741824",
            "sys/fs/cgroup/job/memory.current": "973741824",
            "sys/fs/cgroup/job/memory.stat": "inactive_file 0\n",
            "dev/shm/.keep": "",
        },
    )
    found = machine.memory(root=root)
    assert (found.total_bytes, found.limit_bytes, found.left) == (8_192_000_000, 1 << 30, 100_000_000)
    processors, _ = machine.processors_and_swap(0.0, root=root)
    assert processors.quota_cpus == 0.5
    assert judged("memory", memory=found).status == "broken"
    assert judged("cpu-quota", processors=processors).status == "broken"


def test_a_missing_dev_shm_is_told_with_its_reason(tmp_path) -> None:
    found = machine.memory(root=tmp_path)
    assert found.shared_total_bytes is None
    assert found.unmeasured["shared_free_bytes"] == "No such file or directory"


def test_gpus_on_the_bus_are_known_without_a_driver(tmp_path) -> None:
    devices = tmp_path / "sys/bus/pci/devices"
    write(devices / "0000:01:00.0", {"vendor": "0x10de\n", "class": "0x030200\n"})
    write(devices / "0000:01:00.1", {"vendor": "0x10de\n", "class": "0x040300\n"})  # its sound
    write(devices / "0000:02:00.0", {"vendor": "0x8086\n", "class": "0x030000\n"})
    (tmp_path / "drivers/nouveau").mkdir(parents=True)
    (devices / "0000:01:00.0/driver").symlink_to(tmp_path / "drivers/nouveau")
    (tmp_path / "dev/nvidiactl").mkdir(parents=True)  # which nobody can open to write, root neither
    (tmp_path / "dev/nvidia-modeset").mkdir()
    found = machine.driver(tmp_path)
    assert found.pci == {"0000:01:00.0": "nouveau"}
    assert found.refused == {"/dev/nvidiactl": "Is a directory"}


def test_a_quota_that_the_kernel_keeps_is_recognised() -> None:
    try:
        with beside("quota") as prefix:
            found = type(healthy().processors).model_validate_json(run(prefix, QUOTA))
    except NotPossibleError as error:
        pytest.skip(str(error))
    if found.affinity_cpus < 2:
        pytest.skip("one processor has no room for a quota of one")
    assert found.quota_cpus == 1.0
    assert judged("cpu-quota", processors=found).status == "broken"


@pytest.mark.measured
def test_processors_that_are_taken_away_are_seen() -> None:
    try:
        with beside("steal60"):
            found, _ = machine.processors_and_swap(1.0)
    except NotPossibleError as error:
        pytest.skip(str(error))
    assert judged("neighbours", processors=found).status == "note"
    assert found.foreign_share > 0.25


@contextlib.contextmanager
def mounted(directory: Path, size: str) -> Iterator[Path]:
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(directory)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount here")
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def test_a_full_disk_is_recognised(tmp_path) -> None:
    with mounted(tmp_path / "full", "1m") as full:
        found = machine.place("runs", full / "reports")
    assert found.refused == "No space left on device"
    assert judged("disk-space", places=(found,)).status == "broken"
    assert machine.place("runs", tmp_path).refused is None
    assert not list(tmp_path.glob("*/*"))


def test_a_limit_on_files_is_recognised(tmp_path) -> None:
    shell = ["bash", "-c", 'ulimit -f 1024; exec "$@"', "bash"]
    assert run(shell, PLACE, str(tmp_path)).strip() == "File too large"
    assert run([], PLACE, str(tmp_path)).strip() == "None"
