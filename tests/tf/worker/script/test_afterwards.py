"""Measurements once a script is over: a mode of its step that fails leaves its reason in the record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from xttsbench.records.trial import reason_of
from xttsbench.worker.script.afterwards import _noted


def test_a_mode_that_raises_is_noted_with_its_reason() -> None:
    notes: list[str] = []
    bench: Any = SimpleNamespace(channel=SimpleNamespace(note=notes.append))
    for mode in ("xla", None):
        with _noted(bench, "its step was not measured", mode):
            raise ValueError("no kernel")
    assert reason_of("xla", tuple(notes)) == "run that way the step alone raised ValueError: no kernel"
    assert notes[1] == "the script is over, and its step was not measured: ValueError: no kernel"
