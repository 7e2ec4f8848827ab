"""Verdicts in general: what each one means, what tells it from the others, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Meaning:
    """Explanation of a verdict: its meaning, the evidence that tells it from the others, and the remedy."""

    meaning: str
    evidence: str
    remedy: str


MEANINGS: Final[Mapping[str, Meaning]] = {
    "input": Meaning(
        "The step waits for data.",
        "The time inside next(), beyond handing over a batch that is ready and beyond what competing for the cores "
        "explains. A dataset without a step is always this, with its most costly op named.",
        "Follow the findings marked as the bottleneck; 'xttsbench optimize TARGET' measures their fixes.",
    ),
    "dispatch": Meaning(
        "The time goes into launching ops from Python, not into their work (launch overhead).",
        "What the step, compiled as one graph on the same batches in turns, saves of its own time; where it cannot be "
        "compiled, its number of ops times the least that launching one costs.",
        "Compile the step: @tf.function, or for Keras compile(run_eagerly=False). If it is compiled already, larger "
        "batches or several steps in one call.",
    ),
    "compute": Meaning(
        "The device's own work is the limit; nothing avoidable reaches 10 % of the step.",
        "What is left of the step when all other parts are taken away; an emulated accelerator's wait, and a step that "
        "works outside TensorFlow, are in it.",
        "Make the step itself cheaper: XLA, another precision, a smaller model; or take a faster processor or GPU. "
        "Nothing in the input pipeline is worth changing.",
    ),
    "compile": Meaning(
        "Tracing or XLA compilation recurs after the first step.",
        "The excess of the steps that traced or compiled over the median of those that did not.",
        "Fix the shapes (buckets, drop_remainder=True), pass Python numbers as tensors, make tf.functions once.",
    ),
    "host": Meaning(
        "Host work between steps: logging, checkpoints, figures, garbage collection.",
        "The share of stack samples in the user's own Python and in saving, of the time outside tf.functions.",
        "Do it less often, or in a thread beside the training.",
    ),
    "transfer": Meaning(
        "Copying batches to the device takes a good part of the step.",
        "The time to copy a batch, measured alone; nothing where the processor is the device.",
        "tf.data.experimental.prefetch_to_device at the end of the pipeline; smaller types (uint8, float16).",
    ),
    "contention": Meaning(
        "Input and step compete for the same processors, or for Python's interpreter lock.",
        "Each is slower beside the other than alone, and together they want more processor time than there is.",
        "Take work from the input (cache features, decode less, fewer parallel calls) or add cores; more workers or a "
        "deeper prefetch cannot help.",
    ),
    "inconclusive": Meaning(
        "Undecided: no bottleneck can be named; the sentence says why, and what would decide it.",
        "Too few steps or batches, a trial that ended early, processes that disagree, a probability below 60 %, or "
        "neighbours that hide what competes.",
        "More seconds (--budget), more batches, or a quieter machine, as the sentence says.",
    ),
}
"""Every verdict by its name in the report; ``inconclusive`` is shown as "undecided"."""
