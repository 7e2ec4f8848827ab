"""How fast files are read: what is sampled, what is bounded, and storage that is slow on purpose."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.doctor.made import healthy, said
from xttsbench.errors import InvalidInputError
from xttsbench.probes.machine import read_whole, storage
from xttsbench.records.machine import Check, Storage

ROOT = Path(__file__).parents[3]
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


def judged(found: Storage) -> Check:
    check = said(healthy().model_copy(update={"storage": found}), "storage-speed")
    assert check is not None
    return check


def test_half_of_the_files_is_read_cold_and_warm_and_the_rest_by_many(data) -> None:
    found = storage(data)
    assert (found.listed, found.files, found.bytes) == (40, 20, 20 * 64_000)
    assert (found.parallel_files, found.parallel_bytes) == (20, 20 * 64_000)
    assert found.cold is not None
    assert found.warm is not None
    if found.cold.stored_share is not None and found.filesystem not in ("tmpfs", "overlay"):
        assert found.cold.stored_share > 0.9
        assert found.warm.stored_share == 0.0
        assert judged(found).status == "ok"


def test_a_pass_ends_in_time_in_the_middle_of_a_file(data) -> None:
    (data / "large.bin").write_bytes(bytes(3_000_000))
    now = iter(range(10_000))
    found = storage(data, clock=lambda: next(now) * 0.4)
    assert 0 < found.files < 20
    assert found.cold is not None
    assert found.cold.seconds < 10


def test_storage_that_takes_long_for_each_file_is_broken_and_many_readers_are_the_remedy(data) -> None:
    def far(path: Path) -> Iterator[int]:
        time.sleep(0.03)
        yield from read_whole(path)

    check = judged(storage(data, read=far))
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
        done = subprocess.run(
            [*prefix, sys.executable, "-c", READ, str(data)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    found = Storage.model_validate_json(done.stdout)
    assert found.cold is not None
    assert judged(found).status == "broken"
    assert found.bytes / found.cold.seconds == pytest.approx(1e6, rel=0.5)


def test_what_holds_no_files_is_refused(tmp_path) -> None:
    with pytest.raises(InvalidInputError, match="is no directory"):
        storage(tmp_path / "missing")
    (tmp_path / "empty").touch()
    with pytest.raises(InvalidInputError, match="holds no file to read"):
        storage(tmp_path)
