"""Builders of several modules, patched on copies by ``patch -p1`` and run: the same data, the others unchanged."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patching import apply_patch
from xttsbench.pipeline import places
from xttsbench.pipeline.read import inspect
from xttsbench.records.fix import FixSet, Patch
from xttsbench.targets.load import load_target
from xttsbench.targets.spec import parse_target, substituted
from xttsbench.workflows.optimize import patch_of

BUILDERS = Path(__file__).parents[2] / "targets" / "builders"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the builders, in which the command runs."""
    before, path = set(sys.modules), list(sys.path)
    copy = tmp_path / "project"
    shutil.copytree(BUILDERS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(copy)
    end = places.install()
    yield copy
    end()
    sys.path[:] = path
    _forget()
    assert not {name for name in set(sys.modules) - before if name.startswith("speech")}


def _forget() -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] in ("train", "speech")]:
        del sys.modules[name]


def made(folder: Path, name: str) -> tuple[list[str], list[Any], Any]:
    """The ops that a target makes, its elements, and its dataset."""
    _forget()
    dataset = load_target(parse_target(f"{folder / 'train.py'}:{name}"), {}).dataset
    values = [[part.tolist() for part in _parts(one)] for one in dataset.as_numpy_iterator()]
    return [op.op.partition("Dataset")[0] for op in inspect(dataset).ops], values, dataset


def _parts(element: Any) -> tuple[Any, ...]:
    return element if isinstance(element, tuple) else (element,)


def patched(folder: Path, name: str, *fixes: str) -> Patch:
    """The patch of some fixes; ``cache`` is behind the last map, ``cache-early`` behind the first."""
    pipeline = inspect(made(folder, name)[2])
    maps = [op.name for op in pipeline.ops if "Map" in op.op]
    named = {"cache": f"cache@{maps[-1]}", "cache-early": f"cache@{maps[0]}"}
    patch = patch_of(FixSet.of([named.get(fix, fix) for fix in fixes]), pipeline, folder)
    assert patch is not None
    return patch


@pytest.mark.parametrize(
    ("name", "fixes", "ops", "files", "others"),
    [
        (
            "training",
            ("parallel-map:2", "cache", "prefetch:1"),
            ["Range", "ParallelMap", "ParallelMap", "Cache", "Shuffle", "Batch", "Prefetch"],
            {"speech/builder.py", "speech/loading.py"},
            ["validation"],
        ),
        (
            "shared",
            ("cache", "prefetch:2", "thread-pool:3"),
            ["Range", "Map", "Cache", "Shuffle", "Batch", "Prefetch"],
            {"train.py"},
            ["shared_validation", "fallback"],
        ),
    ],
)
def test_the_patch_is_applied_to_copies_and_yields_the_same(
    folder: Path, name: str, fixes: tuple[str, ...], ops: list[str], files: set[str], others: list[str]
) -> None:
    _, before, _ = made(folder, name)
    kept = {other: made(folder, other)[1] for other in others}
    patch = patched(folder, name, *fixes)
    assert patch.unpatched == {}
    assert {os.path.relpath(file, folder.resolve()) for file in patch.files} == files

    copies = {file: str(folder.parent / f"{number}.py") for number, file in enumerate(patch.files)}
    for file, copy in copies.items():
        Path(copy).write_text(patch.files[file], encoding="utf-8")
    with substituted(copies):
        assert made(folder, name)[:2] == (ops, before)

    apply_patch(patch.diff, folder)
    for file, text in patch.files.items():
        assert Path(file).read_text(encoding="utf-8") == text
    assert made(folder, name)[:2] == (ops, before)
    assert {other: made(folder, other)[1] for other in others} == kept


def test_who_else_runs_the_changed_lines_is_said(folder: Path) -> None:
    train = folder / "train.py"
    line = next(n for n, one in enumerate(train.read_text().splitlines(), 1) if "range(6), training=False" in one)
    said = patched(folder, "shared", "cache").also
    assert f"{train}:{line} calls _prepared(...) as well, and what it makes changes with it" in said


def test_a_cache_within_a_helper_cannot_have_the_callers_shuffle_behind_it(folder: Path) -> None:
    patch = patched(folder, "training", "cache-early")
    assert patch.files == {}
    (why,) = patch.unpatched.values()
    line = (folder / "speech" / "builder.py").read_text().split("loading.decoded(")[0].count("\n") + 1
    assert f"decoded(...) at {folder.resolve()}/speech/builder.py:{line} makes the" in why
