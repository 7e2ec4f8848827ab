"""When filters in parallel are a candidate, and what the model makes of them."""

from __future__ import annotations

import pytest

from tests.unit.fixes.pipelines import BATCH, ENVIRONMENT, RANGE, pipeline
from xttsbench.fixes.parallel import filters_made_parallel
from xttsbench.fixes.spec import Setting
from xttsbench.throughput.threads import AUTOTUNE

FILTER = {"op": "FilterDataset", "cost_s": 0.02, "cpu_s": 0.02, "elements_per_batch": 8.0}


def test_a_costly_predicate_is_called_in_parallel() -> None:
    given = pipeline(RANGE, FILTER, BATCH)
    (found,) = filters_made_parallel(Setting(given, 2, ENVIRONMENT))
    assert (found.name, found.ops) == ("parallel-filter", ("1",))
    assert found.edit is not None
    changed = found.edit(given).ops[1]
    assert (changed.op, changed.parallelism) == ("ParallelFilterDataset", AUTOTUNE)


@pytest.mark.parametrize(
    "op",
    [
        FILTER | {"cost_s": 0.001},
        FILTER | {"cost_s": None},
        FILTER | {"stateful": True},
        FILTER | {"python_functions": ("t",)},
        FILTER | {"op": "MapDataset"},
    ],
)
def test_a_cheap_predicate_one_with_state_and_a_map_stay(op) -> None:
    given = pipeline(RANGE, op, BATCH | {"cost_s": 0.1})
    assert not list(filters_made_parallel(Setting(given, 2, ENVIRONMENT)))
