"""The rung that reads the pipeline: its graph, the cost of each op, and the class of its Python functions."""

from __future__ import annotations

from xttsbench.pipeline.cost.cost_source import with_python_costs
from xttsbench.pipeline.cost.costs import read_costs
from xttsbench.pipeline.cost.python_functions import classify
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench, Step


def run_pipeline(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Read graph and costs, then experiment with the Python functions; no timing of this trial enters the ladder."""
    bench.channel.phase("pipeline")
    pipeline = read_costs(loaded.dataset, batches=spec.steps, max_s=spec.window_s * 0.6)
    bench.channel.part("pipeline", pipeline)
    if pipeline.python_functions:
        bench.channel.phase("python functions")
        classified = classify(loaded.dataset, pipeline, max_s=spec.window_s * 0.6)
        bench.channel.part("pipeline", with_python_costs(classified))
