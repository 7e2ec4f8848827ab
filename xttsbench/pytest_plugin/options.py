"""What the plug-in's options mean: a share, a saved run to compare with; and the notes of the terminal summary."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest


def share(value: float | str, name: str) -> float:
    """The share as a number between 0 and 1, both left out.

    Text may end with ``%``.

    Raises:
        ValueError: it is none.
    """
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = math.nan
    if not 0 < number < 1:
        raise ValueError(f"{name}: a share between 0 and 1, such as 0.05 or 5%, is expected; got {value!r}")
    return number


NOTES: Final = pytest.StashKey[list[str]]()
"""One line each, with the test's name in front."""


_BASELINE_OPTION: Final = "--xttsbench-baseline"


@dataclass(frozen=True)
class Saved:
    """One benchmark of a saved run: the file's name, and its ``extra_info``."""

    source: str
    extra_info: Mapping[str, Any]


Baseline = tuple[str, Mapping[str, Mapping[str, Any]]]
"""A file, and its benchmarks by the full name of their test."""

BASELINE: Final = pytest.StashKey["Baseline | None"]()


def read_baseline(path: Path) -> Baseline:
    """The benchmarks of a file that pytest-benchmark wrote.

    Raises:
        pytest.UsageError: it cannot be read, or is something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return str(path), {bench["fullname"]: bench for bench in found["benchmarks"]}
    except OSError as error:
        raise pytest.UsageError(
            f"{_BASELINE_OPTION} {path} cannot be read ({error.strerror or error}); name a file of --benchmark-json."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise pytest.UsageError(
            f"{_BASELINE_OPTION} {path} is not a file that --benchmark-json or --benchmark-save wrote."
        ) from error


def saved_run(item: pytest.Item) -> Saved | str | None:
    """The saved benchmark of a test; a reason where a run is named that has none; ``None`` where none is named."""
    own = item.config.stash.get(BASELINE, None)
    runs = [own] if own is not None else _loaded(item.config)
    if runs is None:
        return None
    if not runs:
        return "--benchmark-compare has found no saved run"
    for source, benchmarks in reversed(runs):  # the newest first
        if item.nodeid in benchmarks:
            return Saved(source, benchmarks[item.nodeid].get("extra_info") or {})
    return f"{' and '.join(source for source, _ in runs)} has no test of this name"


def _loaded(config: pytest.Config) -> list[Baseline] | None:
    """What pytest-benchmark itself compares with, which it keeps in the plugin that it registers under its name."""
    if not config.getoption("benchmark_compare", None):
        return None
    mapping = getattr(config.pluginmanager.get_plugin("pytest-benchmark"), "compared_mapping", None)
    return [(str(path), benchmarks) for path, benchmarks in (mapping or {}).items()]
