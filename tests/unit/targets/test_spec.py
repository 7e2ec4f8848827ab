from __future__ import annotations

from pathlib import Path

import pytest

from xttsbench.errors import TargetError, UsageError
from xttsbench.targets.spec import parse_setting, parse_target


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "sub dir").mkdir()
    for name in ("data.py", "sub dir/train.py", "a:b.py"):
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "module", "attribute"), [("pkg.data:make", "pkg.data", "make"), ("m:A.b", "m", "A.b")]
)
def test_a_callable_of_a_module(place: Path, text: str, module: str, attribute: str) -> None:
    found = parse_target(text, working_directory=place)
    assert (found.kind, found.place, found.attribute, found.text) == ("module", module, attribute, text)
    assert found.folder == str(place)


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("data.py:make", "data.py"),
        ("./data.py:make", "data.py"),
        ("sub dir/train.py:make", "sub dir/train.py"),
        ("sub dir/../data.py:make", "data.py"),
        ("a:b.py:make", "a:b.py"),
        ("{place}/data.py:make", "data.py"),
    ],
)
def test_a_callable_of_a_file(place: Path, text: str, file: str) -> None:
    found = parse_target(text.format(place=place), working_directory=place)
    path = place / file
    assert (found.kind, found.place, found.attribute) == ("file", str(path), "make")
    assert found.folder == str(path.parent)


def test_a_script_is_a_target_where_scripts_are(place: Path) -> None:
    found = parse_target("sub dir/train.py", working_directory=place, scripts=True)
    path = place / "sub dir" / "train.py"
    assert (found.kind, found.place, found.attribute, found.name) == ("script", str(path), "", "train")
    assert found.folder == str(path.parent)
    with pytest.raises(TargetError, match=r"'no\.py' does not exist"):
        parse_target("no.py", working_directory=place, scripts=True)
    assert parse_target("data.py:make", working_directory=place, scripts=True).kind == "file"


def test_the_working_directory_is_the_default(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    assert parse_target("data.py:make").place == str(place / "data.py")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"Target '' names no callable; write it as 'module:callable' or 'path/to/file\.py:callable'"),
        ("data.py", r"'data\.py' is a script, which diagnose, optimize, prove and watch run .*data\.py:make$"),
        ("data.py:", r"'' is not a Python name"),
        ("data:2x", r"'2x' is not a Python name"),
        (":make", r"'' is neither a module's name nor a \.py file"),
        ("my-module:make", r"'my-module' is neither a module's name"),
        ("nowhere.py:make", r"'nowhere\.py' does not exist \(looked for .*/nowhere\.py\)\. Check the path"),
        ("sub dir/:make", r"'sub dir/' is a directory"),
        ("~no-such-user/x.py:make", r"does not exist"),
        ("x" * 400 + ".py:make", r"does not exist"),
    ],
)
def test_anything_else_is_one_sentence_that_echoes_it(place: Path, text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message) as caught:
        parse_target(text, working_directory=place)
    assert caught.value.exit_code == 5
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("batch_size=16", "batch_size", 16),
        ("lr=1e-4", "lr", 1e-4),
        ("on=true", "on", True),
        ("none=null", "none", None),
        ("empty=", "empty", None),
        ("name=e", "name", "e"),
        ("name='1e-4'", "name", "1e-4"),
        ("sizes=[1, 2, 3]", "sizes", [1, 2, 3]),
        (" padded = 3 ", "padded", 3),
    ],
)
def test_settings_are_yaml_with_plain_exponents_as_numbers(text: str, key: str, value: object) -> None:
    found = parse_setting(text)
    assert found == (key, value)
    assert type(found[1]) is type(value)


@pytest.mark.parametrize("text", ["", "batch_size", "=16", "2x=1", "a-b=1", "a b=1", "a.b=1"])
def test_a_setting_that_is_none_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not KEY=VALUE .*e\.g\. --set batch_size=16") as caught:
        parse_setting(text)
    assert caught.value.exit_code == 2
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("value", ["[1, 2", "{a: 1", "'open", "!!python/object/apply:os.system ['true']", "2024-13-45"])
def test_a_value_that_is_no_yaml_is_a_usage_error(value: str) -> None:
    with pytest.raises(UsageError, match=r"--set key: .* is not a YAML value"):
        parse_setting(f"key={value}")
