"""Rules about what a pipeline holds ready: prefetches missing, idle, too large or misplaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.ops import bytes_of, downstream, memory_bytes, upstream
from xttsbench.findings.gain import Gain, finding, gain
from xttsbench.records.base import Estimate
from xttsbench.records.pipeline import Pipeline, PipelineOp, size
from xttsbench.records.report import Finding, Severity
from xttsbench.rules.proposal import WORTH, WORTH_UNSURE

_PREFETCH: Final = "Prefetch"
_TO_DEVICE: Final = ("CopyToDevice", "PrefetchToDevice")
_LARGE: Final = 0.10
"""Share of the memory from which a buffer is worth a word."""
_TOO_LARGE: Final = 0.25


def no_prefetch(evidence: Evidence) -> Iterator[Finding]:
    """Step and input take turns, where a prefetch at the end helps."""
    helps = gain(evidence, "prefetch")
    pipeline = evidence.pipeline
    if pipeline is None or not pipeline.ops:
        return
    last = pipeline.ops[-1]
    empty = last.op.startswith(_PREFETCH) and last.buffer_size == 0
    if empty and helps is None:
        helps = _overlapped(evidence)
    if helps is None and not (empty and evidence.limits("input") and _has_consumer(evidence)):
        return
    yield finding(
        "no-prefetch",
        "step and input take turns: "
        + ("prefetch(0) prepares nothing" if empty else "nothing is prepared")
        + " while the step runs",
        last,
        {"last_op": last.op, "tensorflow_injects_prefetch": pipeline.injects_prefetch},
        "End the pipeline with .prefetch(tf.data.AUTOTUNE)" + (" in place of .prefetch(0)." if empty else "."),
        limits=helps,
        severity="warning",
    )


def redundant_prefetch(evidence: Evidence) -> Iterator[Finding]:
    """Several prefetches of which only the last hides anything; where leaving them out was measured, not slower."""
    pipeline = evidence.pipeline
    if pipeline is None or not pipeline.ops or not pipeline.ops[-1].op.startswith(_PREFETCH):
        return
    inner = [op for op in pipeline.ops[:-1] if op.op.startswith(_PREFETCH)]
    if not inner:
        return
    fix = evidence.fixes.get("drop-prefetch")
    measured = fix.speedup if fix is not None else None
    adjacent = [op for op in inner if _feeds_prefetch(pipeline, op)]
    # One prefetch into the next hides nothing by construction; of others it takes a measurement to say so.
    if not adjacent and (measured is None or measured.high < 1 / WORTH):
        return
    idle = inner if measured is not None and measured.high >= 1 / WORTH else adjacent
    held = [_buffered(op) * each for op in idle if (each := bytes_of(evidence, op)) is not None]
    found = finding(
        "redundant-prefetch",
        f"{len(idle)} prefetch(es) before the last hold memory and hide nothing",
        idle[0],
        {
            "prefetches": len(inner) + 1,
            "buffered_elements": sum(_buffered(op) for op in idle),
            "buffered_bytes": sum(held) if held else None,
            "speed_without_them": measured.estimate if measured else None,
        },
        "Keep the last prefetch and remove the others.",
    )
    yield found.model_copy(update={"predicted_speedup": measured})


def oversized_prefetch(evidence: Evidence) -> Iterator[Finding]:
    """A prefetch whose buffer takes a good part of the memory: it counts batches where it stands after ``batch``."""
    pipeline = evidence.pipeline
    for op in pipeline.ops if pipeline is not None else ():
        each, buffered = bytes_of(evidence, op), _buffered(op)
        if pipeline is None or not op.op.startswith(_PREFETCH) or each is None or buffered <= 1:
            continue
        on_device = any(own.op.startswith(_TO_DEVICE) for own in upstream(pipeline, op))
        memory = (_gpu_memory_bytes(evidence) if on_device else None) or memory_bytes(evidence)
        held = buffered * each
        if memory is None or held < _LARGE * memory:
            continue
        batched = any("Batch" in own.op for own in upstream(pipeline, op))
        unit = "batches" if batched else "elements"
        autotuned = (op.buffer_size or 0) < 0
        remedy = (
            "AUTOTUNE took that much: give it a number (.prefetch(2)), or options.autotune.ram_budget."
            if autotuned
            else f"A prefetch hides one batch's time, not more: .prefetch(2), or .prefetch(tf.data.AUTOTUNE)."
            f"{' Its buffer counts batches here, since it stands after batch().' if batched else ''}"
        )
        yield finding(
            "oversized-prefetch",
            f"{op.name} holds {buffered} {unit}, {size(held)} of {size(memory)} of {'GPU ' if on_device else ''}memory",
            op,
            {
                "buffer_size": buffered,
                "element_bytes": each,
                "buffered_bytes": held,
                "share_of_memory": held / memory,
                "on_device": on_device,
            },
            remedy,
            severity=_by_share(held / memory),
        )


def device_prefetch_not_last(evidence: Evidence) -> Iterator[Finding]:
    """Ops after a copy to the device: they run on the host, so what they touch is copied back or not ahead of time."""
    pipeline = evidence.pipeline
    for op in pipeline.ops if pipeline is not None else ():
        if pipeline is None or not op.op.startswith(_TO_DEVICE):
            continue
        after = [own for own in downstream(pipeline, op) if not own.op.startswith((_PREFETCH, "Options"))]
        if not after:
            continue
        waits = evidence.limits("input") or evidence.limits("transfer")
        yield finding(
            "device-prefetch-not-last",
            f"{len(after)} op(s) after the copy to the device, {after[0].op} first: they run on the host",
            op,
            {"ops_after": ", ".join(own.op for own in after), "line_after": after[0].location.line},
            "Move .apply(tf.data.experimental.prefetch_to_device(...)) to the very end of the pipeline.",
            severity="warning" if waits else "info",
        )


RULES: Final = (no_prefetch, redundant_prefetch, oversized_prefetch, device_prefetch_not_last)


def _has_consumer(evidence: Evidence) -> bool:
    return evidence.has_step or evidence.emulated


def _overlapped(evidence: Evidence) -> Gain | None:
    """What it gives an input and a step that take turns to overlap: the longer of the two is left.

    For a pipeline of which it is known that they do, since its last op is a prefetch of nothing: TensorFlow adds none
    to that (tried on 2.21: 20 ms and 20 ms took 41 ms with ``prefetch(0)`` and 22 ms with ``prefetch(2)``).
    """
    alone = evidence.input_alone_s
    if not evidence.limits("input") or not _has_consumer(evidence) or alone is None or not evidence.wall_s:
        return None
    speedup = evidence.wall_s / max(alone.estimate, evidence.wall_s - evidence.parts.get("input", 0.0))
    return Gain("prefetch", Estimate(estimate=speedup, low=speedup, high=speedup)) if speedup >= WORTH_UNSURE else None


def _feeds_prefetch(pipeline: Pipeline, op: PipelineOp) -> bool:
    """Whether the only consumer of ``op`` is a prefetch too."""
    consumers = [other for other in pipeline.ops if op.name in other.inputs]
    return bool(consumers) and all(other.op.startswith(_PREFETCH) for other in consumers)


def _buffered(op: PipelineOp) -> int:
    """Elements that a prefetch holds: what was written or AUTOTUNE chose, and no more than there are."""
    wanted = max(op.buffer_size or 0, op.chosen_buffer_size or 0, 0)
    return min(wanted, op.cardinality) if op.cardinality is not None and op.cardinality >= 0 else wanted


def _by_share(share: float) -> Severity:
    return "critical" if share >= 0.8 else "warning" if share >= _TOO_LARGE else "info"


def _gpu_memory_bytes(evidence: Evidence) -> int | None:
    gpus = evidence.environment.get("gpus") or ()
    known = [int(gpu["memory_total_bytes"]) for gpu in gpus if isinstance(gpu, Mapping) and gpu["memory_total_bytes"]]
    return min(known) if known else None
