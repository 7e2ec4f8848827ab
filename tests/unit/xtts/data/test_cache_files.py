"""Files of features: written whole, read strictly, refused by name; one per clip and one of all."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.data.cache_files import (
    HEADER_BYTES,
    CacheFileError,
    check_packed,
    npy_bytes,
    npy_rows,
    open_packed,
    read_npy,
    write_npy,
    write_packed,
)

N_MELS = 80
MEL = np.random.default_rng(0).normal(size=(13, N_MELS)).astype(np.float32)

# Hypothesis calls a test many times with the same fixture: each call writes the file anew.
same_directory = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c0.npy"


def saved(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


@pytest.mark.parametrize("frames", [1, 13])
def test_what_is_written_is_what_numpy_and_we_read(path: Path, frames: int) -> None:
    write_npy(path, MEL[:frames])
    np.testing.assert_array_equal(np.load(path, allow_pickle=False), MEL[:frames], strict=True)
    np.testing.assert_array_equal(read_npy(path, N_MELS), MEL[:frames], strict=True)
    assert npy_rows(path, N_MELS)[0] == frames
    assert path.stat().st_size == npy_bytes(np.array([frames]), N_MELS)[0]
    assert path.read_bytes() == saved(MEL[:frames])


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_other_headers_that_numpy_may_write_are_read(path: Path, version: tuple[int, int]) -> None:
    path.write_bytes(saved(MEL, version=version))
    np.testing.assert_array_equal(read_npy(path, N_MELS), MEL)
    # Spacing that is not ours, and a header that is longer than 128 bytes.
    text = b"{'shape':(13,80),'fortran_order':False,'descr':'<f4'}".ljust(245) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + MEL.tobytes())
    np.testing.assert_array_equal(np.load(path), MEL)
    np.testing.assert_array_equal(read_npy(path, N_MELS), MEL)
    assert npy_rows(path, N_MELS)[0] == 13


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", r"has no readable \.npy header \(it is empty\)"),
        (b"not an array" * 50, r"no readable \.npy header \(it begins with b'not an a'\)"),
        (b"\x93NUMPY\x01\x00\xff\xff{'descr'", "no readable"),
        (b"\x93NUMPY\x01\x00\x10\x00(((((((((((((((((", "no readable"),
        (saved(MEL, version=(3, 0)), "header of version 3.0"),
        (saved(MEL.astype(np.float64)), "holds <f8, and little-endian float32"),
        (saved(np.asfortranarray(MEL)), "Fortran order"),
        (saved(MEL[:, :40]), r"has the shape \(13, 40\), and \[frames, 80\] is expected"),
        (saved(MEL.reshape(-1)), r"has the shape \(1040,\)"),
        (saved(MEL[:0]), r"has the shape \(0, 80\)"),
        (saved(MEL)[:-1], "is truncated: it has 4287 bytes, and its header .13 x 80. means 4288"),
        (saved(MEL) + b"\0", "is too long: it has 4289 bytes"),
    ],
)
def test_what_is_no_such_array_is_refused_by_name(path: Path, content: bytes, why: str) -> None:
    path.write_bytes(content)
    for read in (read_npy, npy_rows):
        with pytest.raises(CacheFileError, match=why) as caught:
            read(path, N_MELS)
        assert str(path) in str(caught.value)
        assert "run 'xttsbench data precompute'" in str(caught.value)


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_file_is_refused(path: Path, make: Any) -> None:
    make(path)
    with pytest.raises(CacheFileError, match=r"cannot be read|is missing"):
        read_npy(path, N_MELS)


@same_directory
@given(kept=st.integers(0, HEADER_BYTES + MEL.nbytes - 1))
def test_a_file_cut_short_anywhere_is_refused(path: Path, kept: int) -> None:
    path.write_bytes(saved(MEL)[:kept])
    with pytest.raises(CacheFileError):
        read_npy(path, N_MELS)


@same_directory
@given(position=st.integers(0, HEADER_BYTES - 1), value=st.integers(0, 255))
@example(position=26, value=ord("B"))  # NumPy's parser raises a TypeError
@example(position=22, value=ord("a"))  # a DeprecationWarning
@example(position=62, value=ord("L"))  # a UserWarning
@example(position=61, value=ord("-"))
def test_a_damaged_header_never_changes_what_is_read(path: Path, position: int, value: int) -> None:
    content = bytearray(saved(MEL))
    content[position] = value
    path.write_bytes(content)
    try:
        found = read_npy(path, N_MELS)
    except CacheFileError:
        return
    np.testing.assert_array_equal(found, MEL, strict=True)


def test_the_error_survives_its_way_from_another_process(path: Path) -> None:
    error = pickle.loads(pickle.dumps(CacheFileError(path, "is missing")))
    assert isinstance(error, InvalidInputError)
    assert (error.path, error.reason, error.exit_code) == (path, "is missing", 5)


ARRAYS = [np.random.default_rng(n).normal(size=(n, 80)).astype(np.float32) for n in (3, 1, 7)]
WHOLE = np.concatenate(ARRAYS)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    write_packed(tmp_path / "packed.npy", iter(ARRAYS), 11, 80)
    return tmp_path / "packed.npy"


def test_arrays_stand_one_below_the_other_in_a_file_that_numpy_maps(packed: Path) -> None:
    mapped = np.load(packed, mmap_mode="r", allow_pickle=False)
    assert isinstance(mapped, np.memmap)
    np.testing.assert_array_equal(mapped, WHOLE, strict=True)


def test_it_is_mapped_read_only(packed: Path) -> None:
    rows = open_packed(packed, 11, 80)
    assert type(rows) is np.ndarray
    np.testing.assert_array_equal(rows[3:4], ARRAYS[1], strict=True)
    with pytest.raises(ValueError, match="read-only"):
        rows[0] = 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda packed: packed.unlink(), "is missing"),
        (
            lambda packed: packed.write_bytes(packed.read_bytes()[:-4]),
            "is truncated: it has 3644 bytes, and its header .11 x 80. means 3648",
        ),
        (lambda packed: packed.write_bytes(packed.read_bytes() + b"1234"), "is too long: it has 3652 bytes"),
        (lambda packed: packed.write_bytes(packed.read_bytes()[:50]), "no readable"),
        (lambda packed: np.save(packed, WHOLE[:10]), "has 10 rows, and the index of its cache means 11"),
        (lambda packed: np.save(packed, WHOLE.astype(np.float64)), "holds <f8"),
        (lambda packed: np.save(packed, np.asfortranarray(WHOLE)), "Fortran order"),
        (lambda packed: np.save(packed, WHOLE[:, :40]), r"has the shape \(11, 40\)"),
    ],
)
def test_any_other_file_is_refused_without_mapping_it(packed: Path, change, why: str) -> None:
    change(packed)
    with pytest.raises(CacheFileError, match=why):
        check_packed(packed, 11, 80)
    with pytest.raises(CacheFileError, match=why):
        open_packed(packed, 11, 80)


def test_nothing_is_left_where_fewer_rows_come_than_were_announced(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="11 rows came, and 12 were announced"):
        write_packed(tmp_path / "packed.npy", ARRAYS, 12, 80)
    assert not list(tmp_path.iterdir())
