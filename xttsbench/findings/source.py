"""The rules about the text of the user's source: places that never do what they say. None is limiting by itself."""

from __future__ import annotations

from typing import Final

from xttsbench.evidence import Evidence
from xttsbench.findings.rule import Findings, Rule, rule
from xttsbench.records.base import Location
from xttsbench.records.code import SourceFact
from xttsbench.records.report import Finding, Severity

_EVERY_LINE: Final = "such a line in what was read of the target's source; never a bottleneck"


@rule(
    "autotune-arithmetic",
    threshold=_EVERY_LINE,
    remedy="Write tf.data.AUTOTUNE alone, or a number alone. To bound the calls, give the map a number or the pipeline "
    "a pool, options.threading.private_threadpool_size; to bound buffers, set options.autotune.ram_budget.",
    false_alarms="none known",
)
def autotune_arithmetic(evidence: Evidence) -> Findings:
    """`min`, `max` or other arithmetic with AUTOTUNE, which is -1."""
    for fact in _facts(evidence, "autotune-arithmetic"):
        yield _at(fact, autotune_arithmetic, f"arithmetic with AUTOTUNE: {fact.detail}")


@rule(
    "dead-option",
    threshold=_EVERY_LINE,
    remedy="Remove the line, use the new name, apply the options, or assign the result that is thrown away.",
    false_alarms="options that a caller elsewhere applies",
)
def dead_option(evidence: Evidence) -> Findings:
    """Options that this TensorFlow does not have, has renamed or ignores, that are never applied; unused results."""
    for fact in _facts(evidence, "dead-option"):
        old = "is the old name" in fact.detail
        yield _at(fact, dead_option, remedy="Use the new name." if old else None, severity="info" if old else "warning")
    for fact in _facts(evidence, "option-never-applied"):
        options = "with_options" in fact.detail
        remedy = "dataset = dataset.with_options(options)." if options else "Assign it: dataset = dataset...."
        yield _at(fact, dead_option, remedy=remedy)


@rule(
    "late-runtime-config",
    threshold="such a line in what was read of the target's source; for information also one that sets a variable "
    "that was not set while xttsbench measured; never a bottleneck",
    remedy="Set a variable before TensorFlow is imported, or in the shell; threads right after the import.",
    false_alarms="a variable that only child processes read",
)
def late_runtime_config(evidence: Evidence) -> Findings:
    """Environment variables and thread settings that are set when TensorFlow has read them already."""
    for fact in _facts(evidence, "late-environment"):
        severity: Severity = "info" if "TF_CPP_" in fact.text else "warning"
        yield _at(fact, late_runtime_config, f"a setting that comes too late: {fact.detail}", severity=severity)
    devices = evidence.devices
    inter, intra = (devices.inter_op_threads, devices.intra_op_threads) if devices else (None, None)
    remedy = "Call it right after the import of TensorFlow, before anything is computed."
    for fact in _facts(evidence, "late-threads"):
        title = f"a setting that comes too late: {fact.detail}"
        yield _at(fact, late_runtime_config, title, remedy, inter_op_threads=inter, intra_op_threads=intra)
    for fact in _facts(evidence, "own-environment"):
        name = fact.detail.partition(" ")[0]
        yield _at(
            fact,
            late_runtime_config,
            f"not measured with a variable that the target sets itself: {fact.detail}",
            f"To measure with it, set it outside ({name}=... xttsbench diagnose ...), or measure the script.",
            severity="info",
        )


@rule(
    "fixed-npy-header",
    threshold="bytes cut at 80, 96 or 128 (slice, offset, seek, tf.strings.substr) where a file is read and decoded or "
    "a .npy file is named, or any slice of what tf.io.read_file gives; never a bottleneck",
    remedy="Read the header's length from bytes 8 and 9 (version 1; 8 to 11 from version 2 on) and cut 10 "
    "(or 12) bytes more; or np.load the file; or keep the data in TFRecord or packed files.",
    false_alarms="files whose headers are all that long",
)
def fixed_npy_header(evidence: Evidence) -> Findings:
    """Bytes of a `.npy` file cut at a constant, as if every header were that long."""
    for fact in _facts(evidence, "fixed-npy-header"):
        slices = "no dimension" in fact.detail
        title = fact.detail if slices else f"a .npy file cut at a constant: {fact.detail}"
        yield _at(fact, fixed_npy_header, title)


@rule(
    "memory-growth-conflict",
    threshold="both settings in one function, or outside of all, and not in branches that exclude each other; a "
    "warning where TensorFlow sees a GPU; never a bottleneck",
    remedy="Keep one: growth where the GPU is shared, a limit where its share is fixed.",
    false_alarms="settings for different GPUs",
)
def memory_growth_conflict(evidence: Evidence) -> Findings:
    """Memory growth and a memory limit for the same GPU."""
    severity: Severity = "warning" if evidence.on_gpu else "info"
    for fact in _facts(evidence, "growth-with-limit"):
        title = f"memory growth and a memory limit for the same GPU: {fact.detail}"
        yield _at(fact, memory_growth_conflict, title, severity=severity)


@rule(
    "early-workers",
    threshold="a PyDataset or Sequence of Keras with an on_epoch_begin, and two workers or more in the same file; "
    "never a bottleneck",
    remedy="Write `def on_epoch_end(self):` in place of `def on_epoch_begin(self):`, and `self.on_epoch_end()` at the "
    "end of __init__: Keras calls on_epoch_end when the workers of an epoch have stopped.",
    false_alarms="an on_epoch_begin that changes nothing that the workers read; a Keras that starts its workers after "
    "on_epoch_begin",
)
def early_workers(evidence: Evidence) -> Findings:
    """A dataset of Keras whose workers read before its `on_epoch_begin` has run: data of the epoch before."""
    for fact in _facts(evidence, "early-workers"):
        yield _at(fact, early_workers, severity="critical")


def _facts(evidence: Evidence, kind: str) -> list[SourceFact]:
    return list({(fact.file, fact.line): fact for fact in reversed(evidence.source) if fact.kind == kind}.values())[
        ::-1
    ]


def _at(
    fact: SourceFact,
    rule: Rule,
    title: str | None = None,
    remedy: str | None = None,
    *,
    severity: Severity = "warning",
    **numbers: int | None,
) -> Finding:
    where = Location(file=fact.file, line=fact.line)
    return rule.finding(title or fact.detail, {"text": fact.text, **numbers}, remedy, severity=severity, at=where)
