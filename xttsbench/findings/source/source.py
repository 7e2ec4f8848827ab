"""Rules from the text of the user's source: places that never do what they say. None of them is limiting by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.records.base import Location
from xttsbench.records.report import Finding
from xttsbench.records.source_fact import SourceFact


def autotune_arithmetic(evidence: Evidence) -> Iterator[Finding]:
    """``min`` or ``max`` with ``AUTOTUNE``, or other arithmetic with it."""
    for fact in _facts(evidence, "autotune-arithmetic"):
        yield _finding(
            fact,
            "autotune-arithmetic",
            severity="warning",
            title=f"arithmetic with AUTOTUNE: {fact.detail}",
            remedy="Write tf.data.AUTOTUNE alone, or a number alone. To bound what is tuned, set "
            "options.autotune.cpu_budget or ram_budget.",
        )


def dead_option(evidence: Evidence) -> Iterator[Finding]:
    """Options and results that reach no pipeline: gone from this TensorFlow, or thrown away."""
    for fact in _facts(evidence, "dead-option"):
        old_name = "is the old name" in fact.detail
        yield _finding(
            fact,
            "dead-option",
            severity="info" if old_name else "warning",
            title=fact.detail,
            remedy="Use the new name."
            if old_name
            else "Remove it, or use what took its place: it changes nothing here.",
        )
    for fact in _facts(evidence, "option-never-applied"):
        options = "with_options" in fact.detail
        yield _finding(
            fact,
            "dead-option",
            severity="warning",
            title=fact.detail,
            remedy="dataset = dataset.with_options(options)." if options else "Assign it: dataset = dataset....",
        )


def late_runtime_config(evidence: Evidence) -> Iterator[Finding]:
    """Environment variables and thread settings that come when TensorFlow has read them already."""
    for fact in _facts(evidence, "late-environment"):
        yield _finding(
            fact,
            "late-runtime-config",
            severity="info" if "TF_CPP_" in fact.text else "warning",
            title=f"a setting that comes too late: {fact.detail}",
            remedy="Set it before TensorFlow is imported, or in the shell that starts the training.",
        )
    for fact in _facts(evidence, "late-threads"):
        devices = evidence.devices
        in_effect = {
            "inter_op_threads": devices.inter_op_threads if devices else None,
            "intra_op_threads": devices.intra_op_threads if devices else None,
        }
        yield _finding(
            fact,
            "late-runtime-config",
            severity="warning",
            title=f"a setting that comes too late: {fact.detail}",
            remedy="Call it right after the import of TensorFlow, before anything is computed.",
            numbers=in_effect,
        )
    for fact in _facts(evidence, "own-environment"):
        name = fact.detail.partition(" ")[0]
        yield _finding(
            fact,
            "late-runtime-config",
            severity="info",
            title=f"not measured with a variable that the target sets itself: {fact.detail}",
            remedy=f"To measure with it, set it outside ({name}=... xttsbench diagnose ...), or measure the script.",
        )


def fixed_npy_header(evidence: Evidence) -> Iterator[Finding]:
    """``.npy`` bytes cut at a constant, as the source shows it; the pipeline's rules tell of other files."""
    for fact in _facts(evidence, "fixed-npy-header"):
        slices = "no dimension" in fact.detail
        yield _finding(
            fact,
            "fixed-npy-header",
            severity="warning",
            title=fact.detail if slices else f"a .npy file cut at a constant: {fact.detail}",
            remedy="Read the header's length from bytes 8 and 9 (version 1; 8 to 11 from version 2 on) and cut 10 "
            "(or 12) bytes more; or np.load the file; or keep the data in TFRecord or packed files.",
        )


def memory_growth_conflict(evidence: Evidence) -> Iterator[Finding]:
    """Memory growth and a memory limit for the same GPUs."""
    for fact in _facts(evidence, "growth-with-limit"):
        here = bool(evidence.devices and evidence.devices.gpus)
        yield _finding(
            fact,
            "memory-growth-conflict",
            severity="warning" if here else "info",
            title=f"memory growth and a memory limit for the same GPU: {fact.detail}",
            remedy="Keep one: growth where the GPU is shared, a limit where its share is fixed.",
        )


RULES: Final = (autotune_arithmetic, dead_option, late_runtime_config, fixed_npy_header, memory_growth_conflict)


def _facts(evidence: Evidence, kind: str) -> list[SourceFact]:
    """The facts of a kind, one a line."""
    found: dict[tuple[str, int], SourceFact] = {}
    for fact in evidence.source:
        if fact.kind == kind:
            found.setdefault((fact.file, fact.line), fact)
    return list(found.values())


def _finding(
    fact: SourceFact,
    rule: str,
    *,
    severity: str,
    title: str,
    remedy: str,
    numbers: dict[str, int | None] | None = None,
) -> Finding:
    return Finding.model_validate(
        {
            "rule": rule,
            "severity": severity,
            "limiting": False,
            "title": title,
            "location": Location(file=fact.file, line=fact.line),
            "evidence": {"text": fact.text, **(numbers or {})},
            "remedy": remedy,
        }
    )
