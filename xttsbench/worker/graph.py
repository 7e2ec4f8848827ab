"""The rung that reads the pipeline: its graph, its Python functions, and the cost of each op."""

from __future__ import annotations

from xttsbench.pipeline.costs import read_costs
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench, Step


def run_pipeline(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Read graph and costs; no timing of this trial enters the ladder."""
    bench.channel.phase("pipeline")
    bench.channel.part("pipeline", read_costs(loaded.dataset, batches=spec.steps, max_s=spec.window_s))
