"""When filters in parallel are a candidate, and what the model makes of them."""

from __future__ import annotations

import pytest

from tests.unit.fixes.pipelines import BATCH, ENVIRONMENT, RANGE, pipeline, python
from xttsbench.fixes.parallel_filter.spec import candidates
from xttsbench.fixes.spec import Setting
from xttsbench.throughput.threads import AUTOTUNE

FILTER = {"op": "FilterDataset", "cost_s": 0.02, "cpu_s": 0.02, "elements_per_batch": 8.0}


def named(*ops, functions=()):
    return [one.name for one in candidates(Setting(pipeline(*ops, python_functions=functions), 2, ENVIRONMENT))]


def test_a_costly_predicate_is_called_in_parallel() -> None:
    given = pipeline(RANGE, FILTER, BATCH)
    (found,) = candidates(Setting(given, 2, ENVIRONMENT))
    assert (found.name, found.ops) == ("parallel-filter", ("1",))
    assert found.edit is not None
    changed = found.edit(given).ops[1]
    assert (changed.op, changed.parallelism) == ("ParallelFilterDataset", AUTOTUNE)


def test_a_predicate_that_waits_gets_a_number_of_calls() -> None:
    waits = FILTER | {"cpu_s": 0.0, "python_functions": ("t",)}
    assert named(RANGE, waits, BATCH, functions=(python("blocks"),)) == ["parallel-filter:32"]


@pytest.mark.parametrize("op", [FILTER | {"cost_s": 0.001}, FILTER | {"cost_s": None}, FILTER | {"op": "MapDataset"}])
def test_a_cheap_or_unpriced_predicate_and_a_map_stay(op) -> None:
    assert named(RANGE, op, BATCH | {"cost_s": 0.1}) == []
