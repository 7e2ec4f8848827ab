"""What each shape cost: sums that add up to those of the segments; and which smaller batches are an epoch's last."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.analysis.attribution import partial_batches, shape_costs


def test_each_shape_has_what_its_own_steps_cost(build) -> None:
    warm = build.segment(
        "warm_up",
        step_s=[1.1, 0.6, 0.1],
        shape_id=[0, 1, 0],
        traces=[1, 1, 0],
        trace_s=[0.9, 0.4, 0],
        xla_compiles=[1, 0, 0],
        xla_s=[0.1, 0, 0],
    )
    later = build.segment("as_is", warmup=1, step_s=[0.1, 0.2, 0.1, 0.2], shape_id=[0, 1, 0, 1])
    first, second = shape_costs([warm, later], ["[(8, 4)]"])
    assert (first.shape, second.shape) == ("[(8, 4)]", "shape 1")
    assert (first.steps, first.traces, first.compiles) == (4, 1, 1)
    assert (second.steps, second.traces, second.compiles) == (3, 1, 0)
    assert first.trace_s == pytest.approx(0.9)
    assert first.xla_s == pytest.approx(0.1)
    assert first.step_s == pytest.approx(0.1)
    assert second.step_s == pytest.approx(0.2)
    assert first.lost_s == pytest.approx(1.0), "too few clean steps in the warm-up: the clocks of TensorFlow count"


def test_the_input_alone_has_no_step(build) -> None:
    assert shape_costs([build.segment("input_only", wait_s=[0.1] * 3, shape_id=[0, 1, 2])]) == []
    assert shape_costs([]) == []


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.floats(0.001, 1.0)), min_size=1, max_size=40))
def test_the_shapes_add_up(build, rows) -> None:
    made = build.segment(
        "as_is",
        step_s=[time for _, _, time in rows],
        shape_id=[shape for shape, _, _ in rows],
        traces=[int(traced) for _, traced, _ in rows],
        trace_s=[time / 2 if traced else 0.0 for _, traced, time in rows],
    )
    costs = shape_costs([made])
    assert sum(cost.steps for cost in costs) == len(rows)
    assert sum(cost.traces for cost in costs) == sum(traced for _, traced, _ in rows)
    assert [cost.shape_id for cost in costs] == sorted({shape for shape, _, _ in rows})
    assert all(cost.lost_s >= 0 for cost in costs)


def epochs(build, *, last=4, compiles_at=(3,), size=(8, 8, 8), **fields):
    sizes = [*size, last] * 3
    compiles = [int(at in compiles_at) for at in range(len(sizes))]
    step = [0.6 if compiled else 0.1 for compiled in compiles]
    epoch = [number for number in range(3) for _ in range(len(size) + 1)]
    return build.segment("as_is", batch_size=sizes, epoch=epoch, xla_compiles=compiles, step_s=step, **fields)


def test_the_last_batch_of_an_epoch_that_compiles(build) -> None:
    found = partial_batches([epochs(build)])
    assert (found.size, found.usual, found.steps, found.compiles) == (4, 8, 3, 1)
    assert found.lost_s == pytest.approx(0.5)


def test_batches_that_vary_within_an_epoch_are_no_last_ones(build) -> None:
    assert partial_batches([epochs(build, size=(8, 4, 8))]) is None
    assert partial_batches([epochs(build, last=12)]) is None, "a larger one"
    assert partial_batches([epochs(build, last=8)]) is None, "all are alike"
    several = build.segment("as_is", batch_size=[3, 5, 7, 8, 2, 6], step_s=0.1)
    assert partial_batches([several]) is None, "no size is the usual one"
    assert partial_batches([]) is None
