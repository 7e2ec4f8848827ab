"""Modules, packages and scripts that are compiled from another file than the one that they are named after."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import io
import linecache
import runpy
import sys
import traceback
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.targets.spec import substituted

ORIGINAL = "def value():\n    return 'original'\n"
PATCHED = "# a line more\ndef value():\n    return 'patched'\n\ndef fails():\n    raise ValueError('here')\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def written(path: Path, text: str, encoding: str = "utf-8") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding=encoding)
    return str(path)


def from_location(path: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_imported_module_is_the_other_text_under_its_own_name(folder: Path) -> None:
    file = written(folder / "sub_target.py", ORIGINAL)
    other = written(folder / "copies" / "sub_patched.py", PATCHED)
    with substituted({file: other}):
        module = importlib.import_module("sub_target")
        assert module.value() == "patched"
        assert module.__file__ == file
        assert module.value.__code__.co_filename == file
        assert inspect.getsource(module.value) == "def value():\n    return 'patched'\n"
        linecache.updatecache(file, vars(module))  # as AutoGraph does first
        assert inspect.getsource(module.value) == "def value():\n    return 'patched'\n"
        assert module.__loader__.get_source("sub_target") == PATCHED
        with pytest.raises(ValueError, match="here") as error:
            module.fails()
        shown = "".join(traceback.format_exception(error.value))
        assert f'{file}", line 6, in fails\n    raise ValueError' in shown
    assert not (folder / "__pycache__").exists()
    assert Path(file).read_text() == ORIGINAL


def test_compiled_files_of_the_original_are_neither_read_nor_replaced(folder: Path) -> None:
    file = written(folder / "sub_compiled.py", ORIGINAL)
    assert importlib.import_module("sub_compiled").value() == "original"
    compiled = list((folder / "__pycache__").iterdir())
    assert len(compiled) == 1
    content = compiled[0].read_bytes()
    del sys.modules["sub_compiled"]
    with substituted({file: written(folder / "copy.txt", PATCHED)}):
        assert importlib.import_module("sub_compiled").value() == "patched"
    assert compiled[0].read_bytes() == content
    del sys.modules["sub_compiled"]
    assert importlib.import_module("sub_compiled").value() == "original"


def test_packages_and_relative_imports(folder: Path) -> None:
    written(folder / "sub_package" / "__init__.py", "from .inner import value\n")
    inner = written(folder / "sub_package" / "inner.py", ORIGINAL)
    with substituted({inner: written(folder / "copy.py", PATCHED)}):
        assert importlib.import_module("sub_package").value() == "patched"


def test_a_file_loaded_by_its_path_or_through_a_link(folder: Path) -> None:
    file = written(folder / "real" / "sub_file.py", ORIGINAL)
    link = folder / "sub_link.py"
    link.symlink_to(file)
    with substituted({str(link): written(folder / "copy.py", PATCHED)}):
        assert from_location(file, "sub_by_path").value() == "patched"
        module = from_location(str(link), "sub_by_link")
        assert (module.value(), module.__file__) == ("patched", str(link))
        assert inspect.getsource(module.value).endswith("'patched'\n")


def test_a_script_and_its_encoding(folder: Path) -> None:
    file = written(folder / "sub_script.py", "text = 'original'\n")
    text = "# -*- coding: latin-1 -*-\ntext, name = 'é', __name__\n"
    with substituted({file: written(folder / "copy.py", text, "latin-1")}):
        ran = runpy.run_path(file, run_name="__main__")
        assert (ran["text"], ran["name"], ran["__file__"]) == ("é", "__main__", file)
        assert from_location(file, "sub_encoded").text == "é"
    assert runpy.run_path(file)["text"] == "original"


def test_everything_is_put_back(folder: Path) -> None:
    file = written(folder / "sub_back.py", ORIGINAL)
    before = (vars(SourceFileLoader).get("get_code"), vars(SourceFileLoader).get("get_data"), io.open_code)
    with (
        pytest.raises(ModuleNotFoundError),
        substituted({file: written(folder / "copy.py", PATCHED + "import sub_no")}),
    ):
        importlib.import_module("sub_back")
    assert (vars(SourceFileLoader).get("get_code"), vars(SourceFileLoader).get("get_data"), io.open_code) == before
    assert linecache.getline(file, 1) == "def value():\n"


def test_other_files_are_read_as_ever(folder: Path) -> None:
    file = written(folder / "sub_one.py", ORIGINAL)
    written(folder / "sub_other.py", "from sub_one import value\nown = 1\n")
    with substituted({file: written(folder / "copy.py", PATCHED)}), substituted({}):
        module = importlib.import_module("sub_other")
        assert (module.value(), module.own) == ("patched", 1)
    assert [path.name.partition(".")[0] for path in (folder / "__pycache__").iterdir()] == ["sub_other"]


def test_a_file_that_is_missing_is_named(folder: Path) -> None:
    file = written(folder / "sub_missing.py", ORIGINAL)
    with pytest.raises(InvalidInputError, match=r"nowhere\.py.*in place of"), substituted({file: "nowhere.py"}):
        pass
