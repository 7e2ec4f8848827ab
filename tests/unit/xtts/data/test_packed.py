"""The packed file: one array that NumPy can map, of exactly the rows announced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xttsbench.xtts.data.npy_cache import CacheFileError
from xttsbench.xtts.data.packed import check_packed, open_packed, write_packed

ARRAYS = [np.random.default_rng(n).normal(size=(n, 80)).astype(np.float32) for n in (3, 1, 7)]
WHOLE = np.concatenate(ARRAYS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_packed(tmp_path / "packed.npy", iter(ARRAYS), 11, 80)
    return tmp_path / "packed.npy"


def test_arrays_stand_one_below_the_other_in_a_file_that_numpy_maps(path: Path) -> None:
    mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    assert isinstance(mapped, np.memmap)
    np.testing.assert_array_equal(mapped, WHOLE, strict=True)


def test_it_is_mapped_read_only(path: Path) -> None:
    rows = open_packed(path, 11, 80)
    assert type(rows) is np.ndarray
    np.testing.assert_array_equal(rows[3:4], ARRAYS[1], strict=True)
    with pytest.raises(ValueError, match="read-only"):
        rows[0] = 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-4]), "is truncated: it has 3644 bytes, and 11 x 80 .* 3648"),
        (lambda path: path.write_bytes(path.read_bytes() + b"1234"), "is too long: it has 3652 bytes"),
        (lambda path: path.write_bytes(path.read_bytes()[:50]), "no readable"),
        (lambda path: np.save(path, WHOLE[:10]), "has 10 rows, and the index of its cache means 11"),
        (lambda path: np.save(path, WHOLE.astype(np.float64)), "holds <f8"),
        (lambda path: np.save(path, np.asfortranarray(WHOLE)), "Fortran order"),
        (lambda path: np.save(path, WHOLE[:, :40]), r"has the shape \(11, 40\)"),
    ],
)
def test_any_other_file_is_refused_without_mapping_it(path: Path, change, why: str) -> None:
    change(path)
    with pytest.raises(CacheFileError, match=why):
        check_packed(path, 11, 80)
    with pytest.raises(CacheFileError, match=why):
        open_packed(path, 11, 80)


def test_nothing_is_left_where_fewer_rows_come_than_were_announced(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="11 rows came, and 12 were announced"):
        write_packed(tmp_path / "packed.npy", ARRAYS, 12, 80)
    assert not list(tmp_path.iterdir())


def test_the_old_file_stands_until_the_new_one_is_on_the_disk(path: Path) -> None:
    seen = []
    write_packed(path, ARRAYS[:1], 3, 80, before_renaming=lambda: seen.append(check_packed(path, 11, 80)))
    assert seen == [128]
    assert check_packed(path, 3, 80) == 128
