"""What is read of a machine: made-up file systems, real control groups and file systems where they can be made."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from benchmarks.noise.neighbours import NotPossibleError, beside
from tests.unit.doctor.made import healthy, said
from xttsbench.errors import InvalidInputError
from xttsbench.probes import machine
from xttsbench.probes.machine import read_whole, storage
from xttsbench.records.machine import Check, Storage

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


READ = "import sys; from xttsbench.probes.machine import *; print(storage(Path(sys.argv[1])).model_dump_json())"
BLKIO = Path("/sys/fs/cgroup/blkio")
UNIFIED = Path("/sys/fs/cgroup")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Forty files of 64 kB, on the disk and nowhere else."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(40):
        with (folder / f"{number}.wav").open("wb") as file:
            file.write(os.urandom(64_000))
            file.flush()
            os.fsync(file.fileno())
    return folder


def test_half_of_the_files_is_read_cold_and_the_rest_by_many(data) -> None:
    found = storage(data)
    assert (found.listed, found.files, found.bytes) == (40, 20, 20 * 64_000)
    assert (found.parallel_files, found.parallel_bytes) == (20, 20 * 64_000)
    if found.cold.stored_share is not None and found.filesystem not in ("tmpfs", "overlay"):
        assert found.cold.stored_share > 0.9
        assert judged("storage-speed", storage=found).status == "ok"


def test_a_pass_ends_in_time_in_the_middle_of_a_file(data, monkeypatch) -> None:
    def slow(_: Path) -> Iterator[int]:
        while True:
            time.sleep(0.01)
            yield 1

    monkeypatch.setattr(machine, "read_whole", slow)
    monkeypatch.setattr(machine, "_PASS_S", 0.1)
    found = storage(data)
    assert (found.files, found.parallel_files) == (1, machine.READERS)
    assert found.cold.seconds < 10


def test_storage_that_takes_long_for_each_file_is_broken_and_many_readers_are_the_remedy(data, monkeypatch) -> None:
    def far(path: Path) -> Iterator[int]:
        time.sleep(0.03)
        yield from read_whole(path)

    monkeypatch.setattr(machine, "read_whole", far)
    check = judged("storage-speed", storage=storage(data))
    assert check.status == "broken"
    assert "times what a single spinning disk would take" in check.seen
    assert "Read several files at once" in check.remedy


@contextlib.contextmanager
def throttled(directory: Path, bytes_per_s: int) -> Iterator[list[str]]:
    """A control group in which reads of the directory's disk are that slow; commands enter it by the prefix."""
    device = directory.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    if (BLKIO / "blkio.throttle.read_bps_device").exists():
        group, file, text = BLKIO, "blkio.throttle.read_bps_device", f"{number} {bytes_per_s}"
    elif (UNIFIED / "cgroup.controllers").exists():
        group, file, text = UNIFIED, "io.max", f"{number} rbps={bytes_per_s}"
    else:
        pytest.skip("no control group for disks here")
    path = group / f"xttsbench-slow-{os.getpid()}"
    try:
        path.mkdir()
        (path / file).write_text(text)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.rmdir()
        pytest.skip(f"a disk cannot be throttled: {error.strerror}")
    try:
        yield ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(path)]
    finally:
        path.rmdir()


def test_a_throttled_disk_is_broken(data) -> None:
    with throttled(data, 1_000_000) as prefix:
        found = Storage.model_validate_json(run(prefix, READ, str(data)))
    assert judged("storage-speed", storage=found).status == "broken"
    assert found.bytes / found.cold.seconds == pytest.approx(1e6, rel=0.5)


def test_what_holds_no_files_is_refused(tmp_path) -> None:
    with pytest.raises(InvalidInputError, match="is no directory"):
        storage(tmp_path / "missing")
    (tmp_path / "empty").touch()
    with pytest.raises(InvalidInputError, match="holds no file to read"):
        storage(tmp_path)
