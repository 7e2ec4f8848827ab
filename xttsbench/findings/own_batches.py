"""The rules about batches that a script makes itself: without a dataset, and before each of many calls of ``fit``."""

from __future__ import annotations

import math
import os
import re
from typing import Final

from xttsbench.evidence import Evidence
from xttsbench.findings.rule import Findings, rule
from xttsbench.fixes.dataset import WORTH_S, expected
from xttsbench.records.base import Estimate, Location
from xttsbench.records.code import OwnBatches
from xttsbench.records.pipeline import CallSite

_SPEC: Final = re.compile(r"tf\.TensorSpec\(\(.*?\), (tf\.\w+)\)")
_MOST_CALLS: Final = 16  # at once, that are advised
_NUMBERED: Final = re.compile(r"enumerate\((.*?)(, *(start=)?\d+)?\)")


@rule(
    "no-dataset",
    threshold="a script whose training loop reads no dataset, or waits for a queue; a bottleneck where the step "
    "waits for data",
    remedy="Put a tf.data.Dataset with a prefetch around what makes the batches: it makes them while a step runs. "
    "Where the step waits less than 5 ms, that gains nothing: take larger batches or, of arrays, "
    "from_tensor_slices. Where a queue is filled too slowly, make several batches at once.",
    false_alarms="a loader with threads or processes of its own that hands its batches over by no queue of Python's",
)
def no_dataset(evidence: Evidence) -> Findings:
    """The script makes batches without a dataset: none while a step runs, or too slowly for those who wait for them."""
    own = evidence.script.own_batches if evidence.script is not None else None
    if own is None or (own.elsewhere and not evidence.limits("input")):
        return
    waits, wait_s = evidence.share("input"), evidence.parts.get("input", 0.0)
    limits, ahead = evidence.limits("input"), wait_s >= WORTH_S
    wall_s = evidence.wall_s or 0.0
    faster = Estimate.exactly(expected(wall_s, wait_s)) if limits and ahead and not own.elsewhere else None
    title = f"{_maker(own)} makes each batch in the thread that trains: none is made while a step runs"
    if own.elsewhere:
        filled = f"{_maker(own)} fills its queue" if own.maker is not None else "its queue is filled"
        title = f"`{own.text}` ({_at(own.place)}) waits: {filled} more slowly than the steps empty it"
    yield no_dataset.finding(
        title,
        {"wait_s": wait_s, "wait_share": waits, "loop": _at(own.place)},
        _at_once(own, wall_s, wait_s) if own.elsewhere else _around(own) if ahead else _sooner(wait_s),
        severity=("critical" if waits >= 0.5 else "warning") if limits else "info",
        at=Location(file=own.place.file, line=own.place.line),
        limiting=limits,
        predicted_speedup=faster,
    )


def _maker(own: OwnBatches) -> str:
    if own.maker is None:
        return f"`{own.text}` ({_at(own.place)})"
    return f"{own.maker_name}() ({_at(own.maker)})"


def _at(site: CallSite) -> str:
    return f"{os.path.basename(site.file)}:{site.line}"


def _around(own: OwnBatches) -> str:
    """Code to write in place of the loop's own line."""
    over, given = own.text.startswith("for "), own.text.partition(" in ")[2]
    if numbered := _NUMBERED.fullmatch(given):
        given = numbered[1]
    made = f"lambda: {given}" if over else "made"
    dataset = f"tf.data.Dataset.from_generator({made}, output_signature={own.signature or '...'}).prefetch(2)"
    if not over:
        return (
            f"Have the batches made ahead: move `{own.text}`, and what belongs to it, into a generator `made()` that "
            f"yields `{own.names}`; write `batches = iter({dataset})` before the loop, and `{own.names} = "
            "next(batches)` in it."
        )
    return (
        f"Have the batches made ahead: `batches = {dataset}` once, before the epochs, and `"
        f"{own.text.replace(given, 'batches')}:` in place of line {own.place.line}. What computes in Python itself "
        "holds the interpreter's lock, which the step needs as well: give that processes of its own, or write it as a "
        "map of TensorFlow ops."
    )


def _at_once(own: OwnBatches, wall_s: float, wait_s: float) -> str:
    """Code that makes several batches at once: as many as keep pace with steps that do not wait."""
    calls = min(max(math.ceil(wall_s / max(wall_s - wait_s, 1e-9)), 2), _MOST_CALLS)
    types = _SPEC.sub(r"\1", own.signature or "...")
    return (
        f"Make {calls} batches at once. Where `make(number)` makes the batch of a number, in place of the queue: "
        f"`batches = iter(tf.data.Dataset.range(n).map(lambda number: tf.numpy_function(make, [number], {types}), "
        f"num_parallel_calls={calls}).prefetch(2))` before the loop, and `{own.names} = next(batches)` in it; they "
        f"keep their order. What computes in Python itself holds the interpreter's lock: have {calls} processes fill "
        "the queue."
    )


def _sooner(wait_s: float) -> str:
    return (
        f"A batch takes {1e3 * wait_s:.1f} ms, and a dataset around a generator about one by itself, beside a step "
        "that needs the interpreter's lock too: that gains nothing. Where the data are arrays, have TensorFlow take "
        "the rows: `tf.data.Dataset.from_tensor_slices((X, y)).shuffle(len(X)).batch(size).prefetch(2)`, made once, "
        "or make batches larger."
    )


_CALLS: Final = 4  # Calls of fit from which they are pieces of one training
_SHARE: Final = 0.3  # Of the time from the first of them on, that passes between them


@rule(
    "between-fits",
    threshold="four calls of fit, and 30 % of the time between them; critical from half; never a bottleneck",
    remedy="Make one dataset of all pieces and call fit once: then the next piece is made while a step runs.",
    false_alarms="models that are trained one after another, each from its start",
)
def between_fits(evidence: Evidence) -> Findings:
    """The script makes pieces of its data between calls of `fit`, while nothing trains."""
    script = evidence.script
    if script is None or "fit" not in script.iterations or script.datasets < _CALLS or not evidence.wall_s:
        return
    between_s = script.between_fits_s
    share = between_s / (between_s + script.steps_seen * evidence.wall_s)
    made = next((op.location for op in evidence.graph.ops if op.location.line), None)
    if share < _SHARE or made is None:
        return
    yield between_fits.finding(
        f"{share:.0%} of the training passes between its {script.datasets} calls of fit, where nothing trains: a cache "
        "or a prefetch reaches no further than the dataset of one call",
        {"fits": script.datasets, "between_s": between_s, "share": share},
        "Make one dataset of all pieces, and call fit once with all epochs: def pieces(): for each piece, yield what "
        f"goes into the dataset of line {made.line} now; data = "
        "tf.data.Dataset.from_generator(pieces, output_signature=...).prefetch(1).unbatch().batch(n).prefetch(2). The "
        "next piece is made while a step runs; where all of them fit into memory, .cache() in front of .batch(n) makes "
        "each once.",
        severity="critical" if share >= 0.5 else "warning",
        at=made,
    )
