"""What the model says of fixes in a form that nobody proposed: put together of several, or with what they leave over.

Pure. Its word decides nothing here either: it is told beside what is measured, and says what to measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xttsbench.analysis.steps import Steps
from xttsbench.evidence.bursts import bursts
from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.stages import pipeline_pace
from xttsbench.fixes.candidate import Candidate
from xttsbench.fixes.model import Model, predict, with_fixes
from xttsbench.fixes.prefetch import last_prefetch
from xttsbench.records.fix import kind_of
from xttsbench.rules.proposals import model_of
from xttsbench.throughput.pace import Consumer


def expected(evidence: Evidence, fixes: Sequence[str]) -> float | None:
    """The speed-up of fixes of the input together; ``None`` where the model cannot say, or is not believed.

    Args:
        evidence: as for :func:`xttsbench.rules.proposals.proposals`.
        fixes: names, in the order in which they are applied.
    """
    found = _known(evidence, fixes)
    return predict(*found).speedup if found is not None else None


def longer_buffer(evidence: Evidence, fixes: Sequence[str], steps: Steps) -> str | None:
    """The fix that keeps more batches ready, where beside some fixes the input still comes in bursts; else ``None``.

    Only once a pipeline is fast enough on the whole does it show that it is not so at every moment: files that are
    read ahead are there all at once, and the first of the next ones are not.

    Args:
        evidence: as above, of the target as it is.
        fixes: names, in the order in which they are applied.
        steps: of the target with these fixes.
    """
    found = _known(evidence, fixes)
    if found is None or any(kind_of(fix) in ("buffer", "prefetch") for fix in fixes):
        return None
    model, parts = found
    pipeline = with_fixes(model, parts)
    if pipeline is None:
        return None
    input_s = pipeline_pace(pipeline, Consumer(), model.evidence).period_s
    uneven = bursts(replace(model.evidence, steps=steps, pipeline=pipeline), pipeline, input_s)
    if uneven is None or uneven.enough is None:
        return None
    return f"{'prefetch' if last_prefetch(pipeline) is None else 'buffer'}:{uneven.enough}"


def _known(evidence: Evidence, fixes: Sequence[str]) -> tuple[Model, list[Candidate]] | None:
    """The model and the candidates of these names, where it knows and is believed."""
    said_of = model_of(evidence)
    if said_of is None or said_of.off is not None:
        return None
    by_name = {one.name: one for one in said_of.known}
    return (said_of.model, [by_name[fix] for fix in fixes]) if set(fixes) <= by_name.keys() else None
