"""Ids: none leads out of its directory, and a clip's side of the split is its own affair."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.xtts.data.ids import held_out, key_maker, why_not_an_id


def keys(count: int, seed: int = 0, start: int = 0) -> npt.NDArray[np.uint64]:
    key = key_maker(seed)
    return np.array([key(b"clip-%d" % number) for number in range(start, start + count)], np.uint64)


@pytest.mark.parametrize("clip_id", ["LJ001-0001", "a", "ünïcode", "two words", "x.y", ".hidden", "a" * 240])
def test_names_of_files_are_ids(clip_id: str) -> None:
    assert why_not_an_id(clip_id) is None


@pytest.mark.parametrize(
    ("clip_id", "words"),
    [
        ("", "empty"),
        ("../x", "is a path"),
        ("/etc/passwd", "is a path"),
        ("a/b", "is a path"),
        ("..\\x", "is a path"),
        ("..", "names a directory"),
        (".", "names a directory"),
        ("a\0b", "control characters"),
        ("a\nb", "control characters"),
        ("a|b", "pipe"),
        ("a" * 241, "longer than 240 bytes"),
        ("ü" * 121, "longer than 240 bytes"),
    ],
)
def test_what_is_no_name_of_a_file_is_refused(clip_id: str, words: str) -> None:
    assert words in str(why_not_an_id(clip_id))


@given(st.text(max_size=300))
def test_no_id_leads_out_of_its_directory(clip_id: str) -> None:
    if why_not_an_id(clip_id) is None:
        path = os.path.normpath(f"/data/wavs/{clip_id}.wav")
        assert Path(path).parent == Path("/data/wavs")
        assert len(os.fsencode(Path(path).name)) < 256


def test_a_sixteenth_is_held_out() -> None:
    assert held_out(keys(20_000)).mean() == pytest.approx(1 / 16, rel=0.1)


def test_a_clips_side_does_not_depend_on_the_others() -> None:
    both = held_out(keys(3000))
    np.testing.assert_array_equal(held_out(keys(1000)), both[:1000])
    np.testing.assert_array_equal(held_out(keys(2000, start=1000)), both[1000:])


def test_seeds_split_otherwise() -> None:
    assert (held_out(keys(1000, seed=0)) != held_out(keys(1000, seed=1))).any()


@pytest.mark.parametrize("count", range(2, 20))
def test_each_side_has_a_clip(count: int) -> None:
    for seed in range(20):
        assert 0 < held_out(keys(count, seed)).sum() < count


def test_all_on_one_side_are_parted() -> None:
    np.testing.assert_array_equal(held_out(np.array([3, 1, 2], np.uint64)), [False, True, True])
    np.testing.assert_array_equal(held_out(np.array([2**63, 2**62, 2**61], np.uint64)), [False, False, True])
    assert not held_out(np.array([2**64 - 1], np.uint64)).any()
    assert held_out(np.array([], np.uint64)).shape == (0,)


def test_keys_are_the_same_in_every_process() -> None:
    code = "from xttsbench.xtts.data.ids import key_maker; print(key_maker(7)('é'.encode()))"
    environment = os.environ | {"PYTHONHASHSEED": "5"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == key_maker(7)("é".encode())
