"""The rule about batches that a script makes itself, without a dataset."""

from __future__ import annotations

import os

from xttsbench.evidence import Evidence
from xttsbench.findings.rule import Findings, rule
from xttsbench.records.base import Estimate, Location
from xttsbench.records.code import OwnBatches


@rule(
    "no-dataset",
    evidence="the seconds of a step that it waits for its batch, their share, and the line of the loop",
    threshold="a script whose training loop has no dataset; a bottleneck where the step waits for input",
    remedy="Put a tf.data.Dataset around what makes the batches, with a prefetch: it makes them while a step runs.",
    false_alarms="The loader has threads or processes of its own that are ahead: then the step waits for little",
)
def no_dataset(evidence: Evidence) -> Findings:
    """The script makes each batch in the thread that trains, so that none is made while a step runs."""
    own = evidence.script.own_batches if evidence.script is not None else None
    if own is None:
        return
    waits = evidence.share("input")
    at = own.maker or own.place
    limits = evidence.limits("input")
    yield no_dataset.finding(
        f"{_maker(own)} makes each batch in the thread that trains: none is made while a step runs",
        {
            "wait_s": evidence.parts.get("input"),
            "wait_share": waits,
            "loop": f"{os.path.basename(own.place.file)}:{own.place.line}",
        },
        _remedy(own),
        severity=("critical" if waits >= 0.5 else "warning") if limits else "info",
        at=Location(file=at.file, line=at.line),
        limiting=limits,
        predicted_speedup=Estimate.exactly(1 / max(waits, 1 - waits)) if limits else None,
    )


def _maker(own: OwnBatches) -> str:
    if own.maker is None:
        return f"`{own.text}` ({os.path.basename(own.place.file)}:{own.place.line})"
    return f"{own.maker_name}() ({os.path.basename(own.maker.file)}:{own.maker.line})"


def _remedy(own: OwnBatches) -> str:
    """Code to write in place of the loop's own line."""
    over = own.text.startswith("for ")
    made = f"lambda: {own.text.partition(' in ')[2]}" if over else "made"
    dataset = f"tf.data.Dataset.from_generator({made}, output_signature={own.signature or '...'}).prefetch(2)"
    if not over:
        return (
            f"Have the batches made ahead: move `{own.text}`, and what belongs to it, into a generator `made()` that "
            f"yields `{own.names}`; write `batches = iter({dataset})` before the loop, and `{own.names} = "
            "next(batches)` in it."
        )
    return (
        f"Have the batches made ahead: `batches = {dataset}`, and `for {own.names} in batches:` in place of line "
        f"{own.place.line}. What computes in Python itself holds the interpreter's lock, which the step needs as well: "
        "give that processes of its own, or write it as a map of TensorFlow ops."
    )
