"""Fixes put on a loaded target, and the rung that measures one: the target as it is, with that alone changed."""

from __future__ import annotations

from dataclasses import replace

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph.apply import apply
from xttsbench.fixes.step.rewrite import fixed_step
from xttsbench.records.fix_set import FixSet
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench, Step
from xttsbench.worker.filling import fill_caches
from xttsbench.worker.ladder import first_batches, measure_as_is, warm_up


def fixed(loaded: Loaded, step: Step | None, spec: TrialSpec) -> tuple[Loaded, Step | None]:
    """The target and its step with the fix of a trial; both as they are where it names none.

    Raises:
        InvalidInputError: a part of the fix does not exist or does not apply, with the reason.
    """
    fixes = FixSet.parse(spec.fix)
    if fixes.of_dataset:
        dataset = apply(loaded.dataset, fixes.of_dataset, cache_dir=spec.cache_dir)
        loaded = replace(loaded, dataset=dataset)
    for fix in fixes.of_step:
        step = fixed_step(step, fix, loaded.model)
    return loaded, step


def run_fix(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Measure a target that has its fix already as :func:`xttsbench.worker.ladder.run_ladder` measures it as it is."""
    if spec.fix is None:
        raise InvalidInputError("a trial of the rung 'fix' names no fix.")
    fill_caches(spec, loaded, bench)
    batches = first_batches(loaded)
    warm_up(bench, step, batches)
    measure_as_is(spec, loaded, step, bench)
