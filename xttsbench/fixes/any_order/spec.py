"""``any-order``: the order of the elements given up, where the user says that it does not matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.fixes.spec import Candidate, Setting, Spec, only


def candidates(setting: Setting) -> Iterator[Candidate]:
    """Whatever runs in parallel and keeps an order."""
    pipeline = setting.pipeline
    ordered = [
        op for op in pipeline.ops if op.op.startswith("Parallel") and (op.deterministic or "default").lower() != "false"
    ]
    if not ordered or pipeline.deterministic is False:
        return
    timed = {one.token for one in pipeline.python_functions if one.call_times_s}
    own = tuple(op.name for op in ordered)
    if any(timed & set(op.python_functions) for op in ordered):
        yield Candidate(
            "any-order",
            only(frozenset(own), {"deterministic": "false"}),
            "the elements come in another order, which differs from run to run",
            ops=own,
        )
        return
    yield Candidate(
        "any-order", None, "what keeping the order costs depends on how calls vary, which is not known", ops=own
    )


ANY_ORDER: Final = Spec(
    name="any-order",
    words="elements in the order in which they are ready",
    does="the order of the elements is given up; only with `--any-order`",
    mends=("order-sensitive",),
    candidates=candidates,
    rewrite="xttsbench.fixes.any_order.rewrite:any_order",
    asked_for="elements in another order have to be asked for",
    patch="xttsbench.fixes.parallel_map.patch:any_order",
)
