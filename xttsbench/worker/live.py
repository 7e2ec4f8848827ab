"""A dataset that lives in the calling process, measured there: no fork of ours could have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import classify
from xttsbench.worker.channel import DirectChannel
from xttsbench.worker.trial import failure, run_rung, step_of


def measure_live(target: Any, spec: TrialSpec, take: Callable[[dict[str, Any]], None], rows: RowMemory) -> None:
    """Run one rung on what a target would have returned, in this process and thread.

    Args:
        target: a dataset, ``(dataset, step)``, ``(dataset, model)`` or a Workload.
        spec: of the trial; its ``target`` is a name for people.
        take: gets each message that a trial in a process of its own would send.
        rows: gets the rows of its steps.

    Raises:
        TargetError: the target is none of these.
    """
    loaded = classify(target, spec.target)
    channel = DirectChannel(take, rows)
    try:
        run_rung(spec, loaded, step_of(loaded), channel)
    except Exception as error:
        channel.send(failure(error))
    channel.send({"done": True})
