"""The bundled workload as a target: its arguments, those of the configurations beside it, and what is made for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from xttsbench.workflows import bundled
from xttsbench.workflows.bundled import bundled_job


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """The arguments for which data would be made."""
    found: list[Mapping[str, Any]] = []

    def prepare(configurations: Iterable[Mapping[str, Any]], _progress: object = None) -> None:
        found.extend(configurations)

    monkeypatch.setattr(bundled, "prepare", prepare)
    return found


def test_behind_an_emulated_accelerator_the_workload_has_no_step_of_its_own(read: list[Mapping[str, Any]]) -> None:
    emulated, real = bundled_job({}, None, "emulated:10"), bundled_job({}, None, "real")
    assert emulated.kwargs["with_step"] is False
    assert real.kwargs.get("with_step") is not False
    assert emulated.comparison is not None
    assert [one.step_times_ms for one in emulated.comparison.accelerators] == [(10.0,)]
    assert read[0] == emulated.kwargs


def test_a_loader_changes_the_target_and_leaves_what_is_compared(read: list[Mapping[str, Any]]) -> None:
    plain, packed = bundled_job({}, None, "real"), bundled_job({"loader": "packed"}, None, "real")
    assert packed.kwargs["loader"] == "packed" != plain.kwargs["loader"]
    assert packed.comparison == plain.comparison
    assert len(read) == 2 * (1 + len(plain.comparison.arms if plain.comparison else ()))
