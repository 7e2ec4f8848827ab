"""Words for people: text from outside made safe to print, and what is read in place of the names that records have.

A target's names, messages and paths may hold terminal escapes, bidirectional overrides, newlines or lone surrogates.
They stay visible as text, but they can neither move the cursor nor break a table or an encoder; markup is escaped by
each exporter.

Beside its word a part of the step has its colour, in console, HTML and plots: Okabe and Ito's set, told apart by the
colour-blind.

Source: M. Okabe and K. Ito, "Color Universal Design" (2008). Each part of a step also has a glyph, so that the bar on a
console without colour (``NO_COLOR``, a log file) can be read.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePath
from typing import Final

from xttsbench.records.report import SPOKEN

_ANSI: Final = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # operating system commands, such as a window title or a link
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\|$)"  # device control and other strings
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # control sequences, such as colours
    r"|\x1b[ -/]*[0-~]?"  # other escapes
)
_FORMULA: Final = ("=", "+", "-", "@")
_DROPPED: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})
"""Control characters, invisible format characters (bidirectional overrides among them), separators of lines."""


def plain(text: object) -> str:
    """One line of ``text`` without terminal escapes and control characters; runs of white space become one space."""
    line = str(text)
    if not line.isprintable():
        line = _strip(line.replace("\n", " ").replace("\r", " ").replace("\t", " "))
    return " ".join(line.split())


def cell(text: object) -> str:
    """``text`` as a cell of a CSV that stays text: a spreadsheet would compute what begins like a formula."""
    shown = plain(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def plain_lines(text: object) -> tuple[str, ...]:
    """The lines of ``text``, each without terminal escapes and control characters, indentation kept."""
    lines = str(text).replace("\r\n", "\n").replace("\r", "\n").expandtabs(4).strip("\n").split("\n")
    return tuple(_strip(line).rstrip() for line in lines)


def _strip(text: str) -> str:
    """``text`` without escapes and controls, lone surrogates (undecodable file names) as a replacement mark."""
    if text.isprintable():
        return text
    kept = []
    for character in _ANSI.sub("", text):
        category = unicodedata.category(character)
        if category == "Cs":
            kept.append("\N{REPLACEMENT CHARACTER}")
        elif category not in _DROPPED:
            kept.append(character)
    return "".join(kept)


LIKELY: Final = {
    "input": "waiting for input",
    "dispatch": "launching ops from Python",
    "compute": "the step's own work",
    "compile": "tracing or compiling again",
    "host": "host work between steps",
    "transfer": "copying batches to the device",
    "contention": "input and step competing for the processors",
}
"""Part of a step to what it is, inside a sentence."""
SAME_DATA: Final = {
    "identical": "yes, bit for bit",
    "rounding": "yes, but for rounding",
    "other order": "yes, in another order",
    "distribution": "random, drawn alike",
    "different": "NO",
    "unknown": "not proved",
}
"""Whether a fix leaves the data alone, by how they were compared (:data:`xttsbench.records.fix.How`)."""
HELPS: Final = {"accepted": "its fix", "rejected": "tried for it, and rejected", "not verified": "a fix to try"}
"""Outcome of the fix that a finding's evidence names to what that fix is to the finding."""
_LABELS: Final = {
    "block": "repeat",
    "blocks": "repeats",
    "contention": "CPU contention",
    "call cpu": "processor time of one call",
    "call time": "time of one call, with the pipeline as it runs",
    "cores busy": "share of the processor time that others left, which the target used",
    "cost share": "share of all ops",
    "cost per batch": "its time per batch, all calls added up",
    "cpus used": "processors that the target used, from its first measured step to the last",
    "excess per step": "time of the slow ones beyond a median step, for each of all steps",
    "excess share": "the same, as a share of the time of these steps",
    "dispatch": "launch overhead",
    "first steps": "numbers of the first of them, from 0",
    "mean of these": "mean of these steps",
    "gil": "interpreter lock",
    "helps": "a fix to try",
    "host": "host work",
    "machine busy": "share of all processors in use meanwhile, by anybody",
    "machine steal": "share of all processors stolen meanwhile",
    "op cost per batch": "its time per batch, all calls added up",
    "op cpu per batch": "its processor time per batch, all threads",
    "own wait share": "share of their time that is waiting",
    "pace share up to it": "share of the time of all ops up to it, with calls at once",
    "pace share": "share of the time, with calls at once",
    "share of allowed cpus": "share of the processor time that others left, which the target used in its steps",
    "same batch of epochs": "batches that are slow in several epochs",
    "threshold": "slow from",
    "predicted": "estimated",
    "residual": "unattributed",
    "verified": "measured",
}
"""Words in the names of a record's fields that people do not read."""
_LABEL: Final = re.compile(rf"\b({'|'.join(_LABELS)})\b(?! work)")
_ORIGINAL: Final = re.compile(r"\bas-given\b")
_LOADERS: Final = {
    "numpy_wav": "WAV files, through NumPy",
    "tf_wav": "WAV files, through TensorFlow",
    "numpy_cache": "features from files, through NumPy",
    "tf_cache": "features from files, through TensorFlow",
    "packed": "features from one packed file",
}
"""Loader of the bundled workload (:mod:`xttsbench.xtts.loaders`) to what it reads."""
_LOCKS: Final = {
    "holds": "held",
    "releases": "released",
    "blocks": "released while it waits",
    "unknown": "may be held or released",
}
"""Phrases for a Python function's use of the interpreter lock, by its class in the records."""
_TRIALS: Final = {
    "ladder": "the isolation experiments in another process",
    "pipeline": "the cost of each op of the pipeline",
    "eager": "the step op by op",
    "graph": "the step as one graph",
    "xla": "the step by XLA",
    "precision": "the step in other precisions",
    "batch": "the step on half of each batch",
}
"""Kind of a trial (:data:`xttsbench.records.trial.TrialKind`) to what a reader misses without it."""
_KEPT: Final = 3


def part(name: str) -> str:
    """Name of a part of the step, or of a verdict."""
    return SPOKEN.get(name, name)


def configuration(name: str) -> str:
    """A configuration as people read it: the target as the user gave it is the ``original``."""
    return _ORIGINAL.sub("original", name)


def in_words(name: str) -> str:
    """A configuration with what it is beside its id, where it is one of the bundled workload's loaders."""
    return f"{name} ({_LOADERS[name]})" if name in _LOADERS else configuration(name)


def label(name: str) -> str:
    """A field's name, with spaces, in the field's words: ``CPU contention per step`` for ``contention per step``."""
    return _LABEL.sub(lambda found: _LABELS[found[0]], name)


def lock(kind: str) -> str:
    """Phrase for a Python function's use of the interpreter lock."""
    return _LOCKS.get(kind, kind)


def short_path(file: str) -> str:
    """The end of a long path: ``…/my_project/data/load.py``."""
    parts = PurePath(plain(file).replace("\\", "/")).parts
    return "/".join(parts) if len(parts) <= _KEPT else "…/" + "/".join(parts[-_KEPT:])


_MISSED: Final = {
    "verdict.step_time_s": "the time of a step",
    "verdict.step_time_median_s": "the median step",
    "verdict.step_time_p95_s": "the 95th percentile of the steps",
    "verdict.input_wait_fraction": "waiting for input",
    "verdict.accelerator_utilization": "accelerator utilization",
    "verdict.attribution_s": "where a step's time goes",
    "verdict.attribution_s.transfer": "copies to the device",
    "oscillation.period_steps": "a period of the step time",
    "oscillation.p99_over_p50": "the slowest steps over the median",
    "oscillation.burstiness": "whether stalls come in bursts",
    "oscillation.cv": "how much the step time varies",
    "warm_up.first_step_s": "the first step",
    "warm_up.trace_s": "the time of tracing",
    "warm_up.xla_compile_s": "the time of XLA compilation",
    "disturbance": "what others did to the machine",
    "disturbance.throttled_share": "time that a processor quota took",
    "overhead": "measurement overhead",
    "verdict.verdict_final_s": "how long the verdict took",
    "pipeline": "the ops of the input pipeline",
    "pipeline.ops.*.cost_s": "the time of some ops",
    "findings.*.verified_speedup": "what mending a finding gives",
    "arms.*.step_time_s": "step time",
    "arms.*.throughput_per_s": "samples/s",
    "arms.*.valid_frames_per_s": "valid frames/s",
    "arms.*.utilization": "utilization",
    "arms.*.padding_efficiency": "padding efficiency",
    "arms.*.effect": "speed-up",
    "arms.*.decision": "result",
}
"""Path of a number in the report to what a reader would miss; of the others the record alone has the reasons."""
_RECORDS: Final = frozenset({"verdict", "oscillation", "warm_up", "fixes", "findings", "predictions", "arms", "aa"})
_NEVER: Final = frozenset({"optimized", "profile", "pairs", "best", "training"})
"""First names of paths of which :data:`_MISSED` has all that anybody misses, and of those that nobody does."""


def missed(path: str) -> str | None:
    """Name of the missing figure at that path; ``None`` for figures that no reader misses.

    In the path ``*`` stands for the number of an entry.
    """
    if path in _MISSED:
        return _MISSED[path]
    first, _, rest = path.partition(".")
    if first == "trials":
        kind = rest.partition(" (")[0]
        return _TRIALS.get(kind, kind)
    return None if first in _RECORDS | _NEVER else path.replace("_", " ")


INK: Final = "#1b1f24"
SOFT: Final = "#59636e"
GRID: Final = "#e3e6ea"
"""Text, lesser text and lines of a plot on white."""

_PARTS: Final = {
    "input": ("#E69F00", "█"),
    "dispatch": ("#D55E00", "▓"),
    "compute": ("#56B4E9", "▒"),
    "compile": ("#CC79A7", "#"),
    "host": ("#F0E442", "="),
    "transfer": ("#009E73", ">"),
    "contention": ("#0072B2", "+"),
    "residual": ("#999999", "░"),
}
PART_COLORS: Final = {name: color for name, (color, _) in _PARTS.items()}
"""Part of the attribution to its colour, in the order in which parts are drawn."""
PART_GLYPHS: Final = {name: glyph for name, (_, glyph) in _PARTS.items()}

SERIES_COLORS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
"""For overlaid trials, in order."""

ARM_COLORS: Final = {
    "baseline": "#E69F00",
    "again": "#F3CF80",
    "faster": "#0072B2",
    "slower": "#D55E00",
    "plain": "#999999",
    "ended": "#D0D4D9",
}
"""Tone of a :class:`~xttsbench.reporting.document.Row` to its colour; ``again`` is a lighter baseline."""

SEVERITY_COLORS: Final = {"critical": "#D55E00", "warning": "#E69F00", "info": "#56B4E9"}
