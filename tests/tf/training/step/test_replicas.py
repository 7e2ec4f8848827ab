"""Several replicas are one: two devices of a process, two processes on loopback; the same losses and weights."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tf.forks import Forks
from xttsbench.errors import UsageError
from xttsbench.training.step import Replicas, make_strategy

CHILD = Path(__file__).with_name("child.py")
Numbers = dict[str, np.ndarray]


def saved(path: Path) -> Numbers:
    with np.load(path) as arrays:
        return dict(arrays)


def two_devices_of(forks: Forks, directory: Path, *options: str) -> Callable[[str], Numbers]:
    with forks.start(CHILD, str(directory), "mirrored", "2", *options) as child:
        child.succeed()
    return lambda name: saved(directory / f"{name}.npz")


@pytest.fixture(scope="module")
def two_devices(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Numbers]:
    return two_devices_of(forks, tmp_path_factory.mktemp("two_devices"))


@pytest.fixture(scope="module")
def two_compiled_devices(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Numbers]:
    return two_devices_of(forks, tmp_path_factory.mktemp("two_compiled_devices"), "xla")


@pytest.mark.parametrize(
    ("devices", "case"),
    [
        ("two_devices", "graph_1"),
        ("two_devices", "graph_4"),
        pytest.param("two_compiled_devices", "xla_1", marks=pytest.mark.slow),
    ],
)
def test_two_devices_do_what_one_does(
    request: pytest.FixtureRequest,
    one_replica: tuple[np.ndarray, Numbers],
    assert_same: Callable[..., None],
    devices: str,
    case: str,
) -> None:
    said, weights = one_replica
    found = request.getfixturevalue(devices)(case)
    # Of values about 4: the sixth digit after the point is the last that float32 has.
    np.testing.assert_allclose(found.pop("said"), said, rtol=1e-6, atol=1e-6)
    assert_same(weights, found, atol=1e-6)


def test_a_number_that_is_none_on_one_replica_makes_all_leave_the_step_out(
    two_devices: Callable[[str], Numbers], assert_same: Callable[..., None]
) -> None:
    before, after, following = (two_devices(name) for name in ("before", "after", "next"))
    assert (after["said"][0, -1], following["said"][0, -1]) == (0, 1)
    del before["said"], after["said"]
    assert_same(before, after)
    np.testing.assert_array_equal(following["replica_0"], following["replica_1"])
    assert np.isfinite(following["replica_0"]).all()


def test_two_restored_devices_go_on_bit_for_bit(
    two_devices: Callable[[str], Numbers], assert_same: Callable[..., None]
) -> None:
    whole = two_devices("whole")
    assert (whole["updates"], two_devices("elsewhere")["updates"]) == (5, 1)
    assert_same(whole, two_devices("resumed"))


def test_two_processes_do_what_one_does(
    forks: Forks,
    tmp_path: Path,
    one_replica: tuple[np.ndarray, Numbers],
    assert_same: Callable[..., None],
    loopback_tasks: list[str],
) -> None:
    environments = [os.environ | {"TF_CONFIG": task} for task in loopback_tasks]
    children = [forks.start(CHILD, str(tmp_path), "multi_worker", "1", environment=own) for own in environments]
    with children[0] as one, children[1] as other:
        one.succeed()
        other.succeed()
    said, weights = one_replica
    for place in range(2):
        found = saved(tmp_path / str(place) / "done.npz")
        assert bool(found.pop("is_chief")) == (place == 0)
        np.testing.assert_allclose(found.pop("said"), said, rtol=1e-6, atol=1e-6)
        assert_same(weights, found, atol=1e-6)


@pytest.mark.parametrize("kind", ["one", "mirrored"])
def test_one_device_is_one_replica(kind: str) -> None:
    replicas = Replicas(make_strategy(kind))
    assert (replicas.count, len(replicas.local), replicas.first_local, replicas.is_chief) == (1, 1, 0, True)


@pytest.mark.parametrize("value", [None, '{"cluster": {}}'])
def test_several_processes_need_their_addresses(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if value is not None:
        monkeypatch.setenv("TF_CONFIG", value)
    with pytest.raises(UsageError, match="multi_worker reads TF_CONFIG"):
        make_strategy("multi_worker")
