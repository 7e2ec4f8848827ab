"""The rules on prefetches: `no-prefetch`, `redundant-prefetch`, `oversized-prefetch`, `device-prefetch-not-last`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from xttsbench.evidence import Evidence
from xttsbench.evidence.pipeline import (
    LARGE,
    PREFETCH,
    TOO_LARGE,
    buffered,
    bytes_of,
    downstream,
    memory_bytes,
    upstream,
)
from xttsbench.findings.rule import Findings, Gain, gain, rule
from xttsbench.fixes.spec import WORTH_UNSURE
from xttsbench.records.base import Estimate
from xttsbench.records.pipeline import Pipeline, PipelineOp, size


@rule(
    "no-prefetch",
    threshold="a prefetch at the end was measured or estimated to help, which makes it a bottleneck; or the last op is "
    "prefetch(0) and the step waits for data",
    remedy="End the pipeline with .prefetch(tf.data.AUTOTUNE).",
    false_alarms="none known",
)
def no_prefetch(evidence: Evidence) -> Findings:
    """Step and input take turns: nothing is prepared while the step runs."""
    helps = gain(evidence, "prefetch")
    pipeline = evidence.graph
    if not pipeline.ops:
        return
    last = pipeline.ops[-1]
    empty = last.op.startswith(PREFETCH) and last.buffer_size == 0
    if empty and helps is None:
        helps = _overlapped(evidence)
    if helps is None and not (empty and evidence.limits("input") and _has_consumer(evidence)):
        return
    yield no_prefetch.finding(
        "step and input take turns: "
        + ("prefetch(0) prepares nothing" if empty else "nothing is prepared")
        + " while the step runs",
        {"last_op": last.op, "tensorflow_injects_prefetch": pipeline.injects_prefetch},
        "End the pipeline with .prefetch(tf.data.AUTOTUNE)" + (" in place of .prefetch(0)." if empty else "."),
        at=last,
        severity="warning",
        helps=helps,
    )


def _has_consumer(evidence: Evidence) -> bool:
    return evidence.has_step or evidence.emulated


def _overlapped(evidence: Evidence) -> Gain | None:
    """Gain of overlapping an input and a step that take turns: the longer of the two is left.

    For a pipeline of which it is known that they do, since its last op is a prefetch of nothing: TensorFlow adds none
    to that (tried on 2.21: 20 ms and 20 ms took 41 ms with ``prefetch(0)`` and 22 ms with ``prefetch(2)``).
    """
    alone = evidence.input_alone_s
    if not evidence.limits("input") or not _has_consumer(evidence) or alone is None or not evidence.wall_s:
        return None
    left_s = max(alone.estimate, evidence.wall_s - evidence.parts.get("input", 0.0))
    speedup = Estimate.exactly(evidence.wall_s / left_s)
    return Gain("prefetch", speedup, speedup) if speedup.estimate >= WORTH_UNSURE else None


@rule(
    "redundant-prefetch",
    threshold="a prefetch right before another, where one ends the pipeline; never a bottleneck",
    remedy="Of prefetches that follow one another, keep the last.",
    false_alarms="none known",
)
def redundant_prefetch(evidence: Evidence) -> Findings:
    """Prefetches right before one another, of which only the last hides anything."""
    pipeline = evidence.graph
    if not pipeline.ops or not pipeline.ops[-1].op.startswith(PREFETCH):
        return
    inner = [op for op in pipeline.ops[:-1] if op.op.startswith(PREFETCH)]
    if not inner:
        return
    # One prefetch into the next hides nothing by construction; another one may smooth what the op behind it takes.
    idle = [op for op in inner if _feeds_prefetch(pipeline, op)]
    if not idle:
        return
    held = [buffered(op) * each for op in idle if (each := bytes_of(evidence, op)) is not None]
    yield redundant_prefetch.finding(
        f"{len(idle)} prefetch(es) before the last hold memory and hide nothing",
        {
            "prefetches": len(inner) + 1,
            "buffered_elements": sum(buffered(op) for op in idle),
            "buffered_bytes": sum(held) if held else None,
        },
        at=idle[0],
    )


def _feeds_prefetch(pipeline: Pipeline, op: PipelineOp) -> bool:
    consumers = [other for other in pipeline.ops if op.name in other.inputs]
    return bool(consumers) and all(other.op.startswith(PREFETCH) for other in consumers)


_TO_DEVICE: Final = ("CopyToDevice", "PrefetchToDevice")


@rule(
    "oversized-prefetch",
    threshold="two elements or more that take 10 % of the memory; a warning from 25 %, critical from 80 %; never a "
    "bottleneck",
    remedy="Where batches come evenly, two of them hide as much: .prefetch(2), or .prefetch(tf.data.AUTOTUNE).",
    false_alarms="an input that comes in bursts may need a large buffer",
)
def oversized_prefetch(evidence: Evidence) -> Findings:
    """A prefetch whose buffer takes a good part of the memory: after `batch` a buffer counts batches, not elements."""
    pipeline = evidence.graph
    for op in pipeline.ops:
        each, count = bytes_of(evidence, op), buffered(op)
        if not op.op.startswith(PREFETCH) or each is None or count <= 1:
            continue
        on_device = any(own.op.startswith(_TO_DEVICE) for own in upstream(pipeline, op))
        memory = (_gpu_memory_bytes(evidence) if on_device else None) or memory_bytes(evidence)
        held = count * each
        if memory is None or (share := held / memory) < LARGE:
            continue
        batched = any("Batch" in own.op for own in upstream(pipeline, op))
        unit = "batches" if batched else "elements"
        autotuned = (op.buffer_size or 0) < 0
        remedy = (
            "AUTOTUNE took that much: give it a number (.prefetch(2)), or options.autotune.ram_budget."
            if autotuned
            else oversized_prefetch.remedy
            + (" Its buffer counts batches here, since it stands after batch()." if batched else "")
        )
        yield oversized_prefetch.finding(
            f"{op.name} holds {count} {unit}, {size(held)} of {size(memory)} of {'GPU ' if on_device else ''}memory",
            {
                "buffer_size": count,
                "element_bytes": each,
                "buffered_bytes": held,
                "share_of_memory": share,
                "on_device": on_device,
            },
            remedy,
            at=op,
            severity="critical" if share >= 0.8 else "warning" if share >= TOO_LARGE else "info",
        )


def _gpu_memory_bytes(evidence: Evidence) -> int | None:
    gpus = evidence.environment.get("gpus") or ()
    known = [int(gpu["memory_total_bytes"]) for gpu in gpus if isinstance(gpu, Mapping) and gpu["memory_total_bytes"]]
    return min(known) if known else None


@rule(
    "device-prefetch-not-last",
    threshold="any op but prefetches and options after the copy; a warning where the step waits for data or copies; "
    "never a bottleneck",
    remedy="Move .apply(tf.data.experimental.prefetch_to_device(...)) to the very end of the pipeline.",
    false_alarms="none known",
)
def device_prefetch_not_last(evidence: Evidence) -> Findings:
    """Ops after `prefetch_to_device`, which TensorFlow wants last: they run on the CPU."""
    pipeline = evidence.graph
    for op in pipeline.ops:
        if not op.op.startswith(_TO_DEVICE):
            continue
        after = [own for own in downstream(pipeline, op) if not own.op.startswith((PREFETCH, "Options"))]
        if not after:
            continue
        waits = evidence.limits("input") or evidence.limits("transfer")
        yield device_prefetch_not_last.finding(
            f"{len(after)} op(s) after the copy to the device, {after[0].op} first: they run on the processor",
            {"ops_after": ", ".join(own.op for own in after), "line_after": after[0].location.line},
            at=op,
            severity="warning" if waits else "info",
        )
