"""The rung without a step: how fast the pipeline alone can go on this machine."""

from __future__ import annotations

from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench, Limit, Step
from xttsbench.worker.filling import fill_caches
from xttsbench.worker.source import LiveBatches


def run_input(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Iterate without step and accelerator; the first batch, with the start of the pipeline, is warm-up."""
    bench.accelerator = None
    if spec.rung == "input":  # a script's has been iterated
        fill_caches(spec, loaded, bench)
    bench.channel.phase("input_only")
    source = LiveBatches(loaded.dataset)
    bench.run("input_only", source, None, Limit(spec.steps, spec.window_s, spec.min_steps), warmup=1)
