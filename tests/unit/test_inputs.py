"""Files that somebody else wrote: only regular ones of a limited size are read, and YAML does not grow nor nest."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from xttsbench.inputs import open_regular, read_arrays, read_bytes, read_text
from xttsbench.limited_yaml import content, parse

ALIASED = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)
MERGED = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9))


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("make", "why"), [(fifo, "is a FIFO"), (device, "is a device"), (Path.mkdir, "Is a directory")]
)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None], why: str) -> None:
    make(tmp_path / "x")
    with pytest.raises(OSError, match=why):
        open_regular(tmp_path / "x")
    with pytest.raises(OSError, match=why):
        read_bytes(tmp_path / "x")


def test_a_link_to_a_regular_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes("ä\r\nb\r".encode())
    (tmp_path / "link").symlink_to("file")
    assert read_text(tmp_path / "link") == "ä\nb\n"


def test_a_file_is_as_large_as_is_said_at_most(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(OSError, match="has 1099511627776 bytes, and 1000000 are read at most"):
        read_text(tmp_path / "sparse")
    (tmp_path / "whole").write_bytes(b"12345")
    assert read_bytes(tmp_path / "whole", 5) == b"12345"


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_that_no_file_can_have_is_an_error_of_the_file(name: str) -> None:
    with pytest.raises(OSError, match="none of a file"):
        read_bytes(name)


@pytest.mark.parametrize(
    "text",
    [ALIASED, MERGED, "[" * 100_000, "&a [*a]", "&a {x: *a}", "- " * 5_000, "[" + "x, " * 30_000 + "]"],
    ids=["aliases", "merges", "nested", "itself", "its-own", "lists", "long"],
)
def test_yaml_that_stands_for_more_than_it_is_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="too large or too deep"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    ['!!int ""', "!!bool x", "!!timestamp x", "2001-99-99", "1" + ":59" * 500, "1" * 5000, "!!x 1"],
)
def test_a_value_that_is_not_of_its_kind_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        content(text)


def test_yaml_with_aliases_within_reason_is_read_as_before() -> None:
    text = "base: &base {a: 1, b: [1, 2]}\nother: {<<: *base, c: *base}\nrate: 1e-4\n"
    assert content(text) == yaml.safe_load(text)
    assert parse(text, exponents=True)[1]["rate"] == 1e-4
    assert parse("")[1] is None


def test_arrays_that_claim_more_than_the_archive_has_are_refused() -> None:
    honest, compressed = io.BytesIO(), io.BytesIO()
    np.savez(honest, a=np.zeros(100_000))
    np.savez_compressed(compressed, a=np.zeros(100_000))
    assert read_arrays(honest)["a"].shape == (100_000,)
    with pytest.raises(ValueError, match="claim more"):
        read_arrays(compressed)


@pytest.mark.parametrize("header", [b"{'descr': '<f8', 'fortran_order': False, 'shape': (10**15,", b"{(" * 20])
def test_a_damaged_header_in_an_archive_is_one_kind_of_error(header: bytes) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writing:
        writing.writestr("a.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(ValueError, match=r"."):
        read_arrays(archive)
