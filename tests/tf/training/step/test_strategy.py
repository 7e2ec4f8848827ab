"""Strategies of one process, and what is said of those that cannot be made."""

from __future__ import annotations

import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.training.step import Replicas, make_strategy


@pytest.mark.parametrize("kind", ["one", "mirrored"])
def test_one_device_is_one_replica(kind: str) -> None:
    replicas = Replicas(make_strategy(kind))
    assert (replicas.count, len(replicas.local), replicas.first_local, replicas.is_chief) == (1, 1, 0, True)


def test_an_unknown_strategy_is_named() -> None:
    with pytest.raises(InvalidInputError, match="one of one, mirrored, multi_worker is expected, got 'central'"):
        make_strategy("central")


@pytest.mark.parametrize("value", [None, '{"cluster": {}}'])
def test_several_processes_need_their_addresses(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if value is not None:
        monkeypatch.setenv("TF_CONFIG", value)
    with pytest.raises(InvalidInputError, match="multi_worker needs the addresses of all processes in TF_CONFIG"):
        make_strategy("multi_worker")
