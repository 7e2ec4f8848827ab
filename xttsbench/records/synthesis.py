"""What crosses between the two processes of ``xttsbench synthesize``: the job, and what became of it."""

from __future__ import annotations

from xttsbench.records.base import Record


class SynthesisJob(Record):
    """What the process that speaks is told. Paths are absolute."""

    checkpoint: str
    """A run's directory, its ``checkpoints/``, or a checkpoint."""
    text: str
    speaker: str | None = None
    """A speaker of the run; ``None`` with a reference, or for the first one."""
    reference: str | None = None
    """A WAV file of the voice to speak with."""
    out: str
    """The WAV file to write."""


class Synthesised(Record):
    """What was spoken."""

    out: str
    text: str
    left_out: str
    """Characters of the text that the model does not know, each once."""
    speaker: str | None
    """``None`` where a WAV file was the reference."""
    step: int
    """Of the checkpoint."""
    averaged: bool
    """Whether the averaged weights spoke."""
    seconds: float
    """Duration of the speech."""
    stopped: bool
    """Whether the model said where speech ends; if not, it was cut off."""
    synthesis_s: float
    """Time that it took to speak, without the start of the process and of TensorFlow."""
    sound_s: float
    """Time that Griffin-Lim took."""
    notes: tuple[str, ...] = ()
    """What is to be said of it: a damaged checkpoint that was passed over."""
