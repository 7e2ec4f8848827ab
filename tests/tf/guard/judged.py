"""Every fix of a pipeline judged as ``xttsbench optimize`` judges it: three runs of the original, one with the fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from pipelines import Plan, Truth

from xttsbench.errors import InvalidInputError
from xttsbench.execution.child import Collected
from xttsbench.execution.helper import Helper
from xttsbench.execution.limits import Limits
from xttsbench.execution.trial import run_trial
from xttsbench.fixes import graph as rewrite
from xttsbench.pipeline import places
from xttsbench.pipeline.nodes import dataset_nodes
from xttsbench.pipeline.read import read_graph
from xttsbench.records.code import ScriptAgain, ScriptData
from xttsbench.records.fix import Semantics
from xttsbench.records.pipeline import Elements
from xttsbench.records.readings import Readings
from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialSpec
from xttsbench.samedata.judge import judge
from xttsbench.step.watch import Watch
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench
from xttsbench.worker.channel import Channel
from xttsbench.worker.failure import ExhaustedError
from xttsbench.worker.fingerprint import read_elements

FIXES = (
    "native", "parallel-map:4", "parallel-interleave:4", "batch-first", "gather",
    "prefetch", "thread-pool:8", "buffer:4", "open-generator:4",
)  # fmt: skip
POOL = ("processes:2 + parallel-map:2",)
"""Cost a second each, so that they are not tried on every pipeline."""
LIMITS_OF_SOURCES = (21, 9, 4)
"""Elements that sources are cut to: the first of them with which epochs end within the elements that are read."""
_MOST_CACHES = 3
"""Places of a cache that are tried, of all that a pipeline has."""


class Kept(Channel):
    """A channel to nowhere."""

    def __init__(self) -> None:
        self.rows = RowMemory(bytearray(RowMemory.size_bytes(1)))
        self.messages: list[object] = []

    def send(self, message: object) -> None:
        self.messages.append(message)


@dataclass(frozen=True)
class Judged:
    """One fix of one pipeline."""

    plan: Plan
    fix: str
    truth: Truth
    said: Semantics


def spec_of(fix: str | None, seed: int, **fields: Any) -> TrialSpec:
    """A trial of the guard."""
    given = {"target": "t:t", "steps": 100, "epochs": 2, "window_s": 20.0, "source_limit": 41} | fields
    return TrialSpec(trial_id="0", kind="elements", fix=fix, seed=seed, jitter=fix is not None, **given)


def elements(
    plan: Plan, folder: Path, fix: str | None = None, *, seed: int = 0, source_limit: int = LIMITS_OF_SOURCES[0]
) -> Elements:
    """The fingerprints of one trial, with state as a fresh process has it."""
    spec = spec_of(fix, seed, source_limit=source_limit)
    tf.keras.utils.set_random_seed(seed)
    end = places.install()
    channel = Kept()
    try:
        dataset = plan.build(folder)
        fixed = dataset if fix is None else rewrite.apply(dataset, fix)
        with Watch() as watch:
            bench = Bench(channel, watch, None, None)
            channel.part("elements", read_elements(spec, Loaded("dataset", fixed, None), None, bench, dataset))
    finally:
        end()
    collected = Collected(spec, channel.rows)
    for message in channel.messages:
        collected.take(message)
    record = collected.record(started_utc="2026-01-01T00:00:00", duration_s=1.0, readings=Readings())
    assert record.elements is not None
    return record.elements


def judged(plan: Plan, folder: Path, *, pool: Sequence[str] = ()) -> Iterator[Judged]:
    """All fixes that apply to a pipeline; none where it yields nothing."""
    np.random.seed(0)
    try:
        limit, first = whole(lambda limit: elements(plan, folder, source_limit=limit))
        originals = [first, *(elements(plan, folder, seed=seed, source_limit=limit) for seed in (0, 1))]
    except ExhaustedError:
        return
    dataset = plan.build(folder)  # kept, and with it what its graph refers to
    graph = read_graph(dataset)
    caches = caches_of(graph)
    for fix in (*FIXES, *pool, *caches):
        try:
            if fix not in pool:
                rewrite.apply(dataset, fix)  # most do not apply, which is known at once
            fixed = elements(plan, folder, fix, source_limit=limit)
            after = graph_with(plan, folder, fix) if fix.endswith("native") else graph
        except InvalidInputError:
            continue
        except ExhaustedError:  # the trial fails, and the fix with it
            continue
        yield Judged(plan, fix, plan.truth(fix, graph, after), judge(originals, fixed))


def whole(run: Callable[[int], Elements | None]) -> tuple[int, Elements | None]:
    """A run of the original whose epochs end, where a limit has them end; the command reads whole ones, too."""
    for limit in LIMITS_OF_SOURCES:
        found = run(limit)
        if found is None or all(epoch.ended for epoch in found.epochs):
            break
    return limit, found


def caches_of(graph: Any) -> list[str]:
    """Caches at some places of a graph."""
    caches = [f"cache@{node.name}" for node in dataset_nodes(graph)]
    return caches[:: -(-len(caches) // _MOST_CACHES)]


SCRIPT = """import sys
from pathlib import Path

sys.path.insert(0, {beside!r})
from pipelines import Plan

dataset = {plan!r}.build(Path({folder!r}))
for number, batch in enumerate(dataset):
    if number == 60:
        break
"""
LIMITS = Limits(30.0, 30.0)


def helper_of_scripts() -> Helper:
    """Forks the trials of scripts; a context manager."""
    return Helper(scripts=True, imports=("tensorflow", "keras"), print_to_stderr=True)


def judged_in_script(plan: Plan, folder: Path, helper: Helper) -> Iterator[Judged]:
    """As :func:`judged`, of a script that builds the pipeline and iterates it, each trial in a fork of the helper."""
    script = folder / "train.py"
    script.write_text(SCRIPT.format(beside=str(Path(__file__).parent), plan=plan, folder=str(folder)))
    known = ScriptAgain(data=ScriptData(kind=0), trains=False, redirected=False, directory=str(folder / "run"))

    def run(limit: int, fix: str | None = None, seed: int = 0) -> Elements | None:
        spec = spec_of(fix, seed, target=str(script), script=known, source_limit=limit)
        return run_trial(spec, helper, LIMITS).elements

    limit, first = whole(run)
    originals = [one for one in (first, *(run(limit, seed=seed) for seed in (0, 1))) if one is not None]
    if len(originals) < 3:
        return
    dataset = plan.build(folder)
    graph = read_graph(dataset)
    for fix in (*FIXES, *caches_of(graph)):
        try:
            after = graph_with(plan, folder, fix)
        except InvalidInputError:
            continue
        fixed = run(limit, fix)
        if fixed is not None:
            yield Judged(plan, fix, plan.truth(fix, graph, after), judge(originals, fixed))


_KEPT: list[tf.data.Dataset] = []
"""Datasets whose graphs are still looked at: what these refer to lives as long as they do."""


def graph_with(plan: Plan, folder: Path, fix: str) -> Any:
    """The graph of a fresh dataset with a fix."""
    _KEPT.append(rewrite.apply(plan.build(folder), fix))
    return read_graph(_KEPT[-1])
