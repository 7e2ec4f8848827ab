"""Reading YAML: numbers, lines, and files that are no YAML, each with one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.scenario.yaml_file import read_yaml


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "file.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("1.5e4", 1.5e4), ("-2E+3", -2e3), ("1.0e-5", 1e-5), ("12", 12), ("e5", "e5"), ("1e", "1e")],
)
def test_numbers_with_an_exponent_are_numbers(write, text: str, value: object) -> None:
    found = read_yaml(write(f"x: {text}\n")).content["x"]
    assert found == value
    assert type(found) is type(value)


@settings(max_examples=50)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_that_python_writes_is_read_back(tmp_path_factory, number: float) -> None:
    path = tmp_path_factory.mktemp("yaml") / "file.yaml"
    path.write_text(f"x: {number!r}\n")
    assert read_yaml(path).content["x"] == number


def test_each_key_has_its_line(write) -> None:
    file = read_yaml(write("# comment\na: 1\nb:\n  c: [1, 2]\n  d:\n  - e: 3\n  - f: 4\n"))
    assert file.line(("a",)) == 2
    assert file.line(("b", "c")) == 4
    assert file.line(("b", "d", 1, "f")) == 7
    assert file.line(("b", "d", 1, "missing")) == 7  # the nearest above
    assert file.line(("nowhere",)) == 2  # where the content begins


def test_a_key_given_twice_is_a_problem(write) -> None:
    assert read_yaml(write("a: 1\nb: 2\na: 3\n")).problems == ((("a",), "given twice, first in line 1"),)


def test_merged_keys_are_allowed(write) -> None:
    file = read_yaml(write("base: &b {x: 1}\narm:\n  <<: *b\n  y: 2\n"))
    assert file.content["arm"] == {"x": 1, "y": 2}
    assert file.problems == ()


# A few lines that stand for eight to the power of seven numbers.
BOMB = "x: &x [1,1,1,1,1,1,1,1]\n" + "".join(
    f"{key}: &{key} [{','.join([f'*{before}'] * 8)}]\n" for before, key in zip("xabcde", "abcdef", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", ["the file holds nothing"], id="empty"),
        pytest.param("- 1\n- 2\n", ["the file holds a list"], id="list"),
        pytest.param("just words\n", ["the file holds one value"], id="text"),
        pytest.param("a: [1\nb: 2\n", ["line 2", "not YAML"], id="open"),
        pytest.param("a: 1\n---\nb: 2\n", ["not YAML", "document"], id="two"),
        pytest.param("a: 2020-13-45\n", ["not YAML", "month"], id="date"),
        pytest.param("a: !!python/object/apply:os.system [ls]\n", ["not YAML", "python/object"], id="tag"),
        pytest.param("? [1, 2]\n: 3\n? {a: 1}\n: 4\n", ["not YAML", "key"], id="keys"),
        pytest.param(b"\xff\xfe\x00", ["cannot be read as text"], id="binary"),
        pytest.param(b"a: \x00\n", ["not YAML"], id="nul"),
        pytest.param("a: &a [*a]\n", ["too deep"], id="recursive"),
        pytest.param(BOMB, ["too large"], id="bomb"),
    ],
)
def test_what_is_no_mapping_is_refused_in_one_sentence(write, text: str | bytes, words: list[str]) -> None:
    path = write(text)
    with pytest.raises(InvalidInputError) as raised:
        read_yaml(path)
    assert str(path) in str(raised.value)
    assert [word for word in words if word not in str(raised.value)] == []
    assert "\n" not in str(raised.value)


def test_a_directory_a_missing_file_and_a_huge_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is a directory"):
        read_yaml(tmp_path)
    with pytest.raises(InvalidInputError, match="No such file"):
        read_yaml(tmp_path / "missing.yaml")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_yaml(Path("a\0b.yaml"))
    (tmp_path / "huge.yaml").write_bytes(b"# " + b"x" * 2_000_000)
    with pytest.raises(InvalidInputError, match="2000002 bytes"):
        read_yaml(tmp_path / "huge.yaml")
