"""What forbids a comparison, and what is only named."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from xttsbench.comparison.comparable import Measured, differences
from xttsbench.probes.environment import environment, fingerprint

ENVIRONMENT: dict[str, Any] = {
    "cpu": {"model": "Xeon", "machine_cpus": 8, "affinity_cpus": 2, "quota_cpus": None},
    "gpus": [{"name": "L4", "index": 0}],
    "gpu_driver": "550",
    "packages": {"tensorflow": "2.21.0", "numpy": "2.4.6", "xttsbench": "0.1.0"},
    "python": {"version": "3.11.7"},
    "variables": {"CUDA_VISIBLE_DEVICES": "0", "TF_XLA_FLAGS": "x"},
}
SIDE = Measured(
    environment=ENVIRONMENT,
    accelerator="real device",
    steps=240,
    batch=16.0,
    kwargs={"workers": 2},
    data="d1",
    code="c1",
    target="data.py:make",
)


def changed(path: str, value: Any) -> Measured:
    other = copy.deepcopy(ENVIRONMENT)
    *parents, last = path.split(".")
    place: Any = other
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name]
    place[last] = value
    return replace(SIDE, environment=other)


def told(a: Measured, b: Measured, **options: Any) -> list[tuple[str, str, str, bool]]:
    return [(one.field, one.a, one.b, one.comparable) for one in differences(a, b, **options)]


def test_alike_differ_in_nothing() -> None:
    assert differences(SIDE, SIDE) == ()
    assert differences(Measured(environment={}), Measured(environment={"cpu": "broken"})) == ()


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("cpu.model", "EPYC", "processor"),
        ("cpu.machine_cpus", 4, "processors of the machine"),
        ("cpu.affinity_cpus", 4, "processors allowed (affinity)"),
        ("cpu.quota_cpus", 1.5, "processor quota"),
        ("gpus.0.name", "T4", "GPU"),
        ("gpu_driver", "551", "GPU driver"),
        ("variables.CUDA_VISIBLE_DEVICES", "1", "CUDA_VISIBLE_DEVICES"),
        ("packages.tensorflow", "2.20.0", "TensorFlow"),
    ],
)
def test_every_part_of_the_fingerprint_forbids(path: str, value: Any, field: str) -> None:
    other = changed(path, value)
    assert fingerprint(other.environment) != fingerprint(ENVIRONMENT)
    (found,) = differences(SIDE, other)
    assert (found.field, found.b, found.comparable) == (field, str(value), False)
    assert differences(SIDE, other, same_run=True) == ()


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("packages.numpy", "2.5.0", "numpy"),
        ("packages.xttsbench", "0.2.0", "xttsbench"),
        ("python.version", "3.12.1", "Python"),
        ("variables.TF_XLA_FLAGS", "y", "TF_XLA_FLAGS"),
    ],
)
def test_what_is_changed_on_purpose_is_named(path: str, value: Any, field: str) -> None:
    other = changed(path, value)
    assert fingerprint(other.environment) == fingerprint(ENVIRONMENT)
    assert [(one.field, one.comparable) for one in differences(SIDE, other)] == [(field, True)]


def test_settings_of_the_measurement_forbid() -> None:
    other = replace(SIDE, accelerator="emulated accelerator, 10 ms a step", steps=100, batch=32.0, data="d2")
    assert told(SIDE, other) == [
        ("accelerator", "real device", "emulated accelerator, 10 ms a step", False),
        ("steps a trial", "240", "100", False),
        ("data set", "d1", "d2", False),
        ("samples in a batch", "16", "32", False),
    ]
    # Within one run arms with other batches were compared on purpose, but an emulated device is never a real one.
    assert [one[0] for one in told(SIDE, other, same_run=True)] == ["accelerator"]


def test_batches_of_a_token_budget_vary_a_little() -> None:
    assert differences(SIDE, replace(SIDE, batch=17.0)) == ()
    other = replace(SIDE, kwargs={"workers": 2, "tokens_per_batch": 4000})
    assert told(SIDE, other) == [("argument tokens_per_batch", "not recorded", "4000", False)]


def test_the_same_data_may_lie_elsewhere() -> None:
    here, there = replace(SIDE, kwargs={"data": "/a"}), replace(SIDE, kwargs={"data": "/b"})
    assert differences(here, there) == ()
    unknown = replace(there, data=None)
    assert told(here, unknown) == [("data set", "/a", "/b", False)]
    alone = replace(SIDE, kwargs=None, data=None, steps=None)
    assert all(found.comparable for found in differences(SIDE, alone))


def test_code_target_and_arguments_are_named() -> None:
    other = replace(SIDE, code="c2", target="other.py:make", kwargs={"workers": 4, "lr": 1})
    assert told(SIDE, other) == [
        ("target", "data.py:make", "other.py:make", True),
        ("code", "c1", "c2", True),
        ("argument workers", "2", "4", True),
        ("argument lr", "not recorded", "1", True),
    ]


def test_this_machine_is_comparable_with_itself() -> None:
    here = Measured(environment=environment())
    assert differences(here, here) == ()
