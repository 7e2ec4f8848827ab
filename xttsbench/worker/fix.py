"""The rung of a candidate fix: the target as it is, with one rewrite of its pipeline."""

from __future__ import annotations

from dataclasses import replace

from xttsbench.errors import InvalidInputError
from xttsbench.pipeline import rewrite
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench, Step
from xttsbench.worker.filling import fill_caches
from xttsbench.worker.ladder import first_batches, measure_as_is, warm_up


def run_fix(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Rewrite the pipeline, then measure the target as :func:`xttsbench.worker.ladder.run_ladder` measures it."""
    if spec.fix is None:
        raise InvalidInputError("a trial of the rung 'fix' names no fix.")
    fixed = replace(loaded, dataset=rewrite.apply(loaded.dataset, spec.fix))
    fill_caches(spec, fixed, bench)
    batches = first_batches(fixed)
    warm_up(bench, step, batches)
    measure_as_is(spec, fixed, step, bench)
