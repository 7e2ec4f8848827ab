"""The screen of a job's ranks, judged together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.records.ranks import RankRow, RanksReport
from xttsbench.reporting import document as doc
from xttsbench.reporting import units

_WORDS: Final = {
    "hang": "a rank hangs",
    "died": "a rank died",
    "duplicated": "same samples",
    "starved": "starved shard",
    "straggler": "a rank is late",
}
_TIMES: Final = {
    "a step": "step_s",
    "own input": "input_s",
    "compute": "compute_s",
    "host work": "host_s",
    "in collectives": "collective_s",
}


def ranks_document(found: RanksReport) -> doc.Document:
    """The document, the same at each level of detail."""
    first = found.findings[0] if found.findings else None
    word = _WORDS[first.fault] if first is not None else "no fault" if len(found.rows) > 1 else "undecided"
    headline = doc.Headline("report", f"{found.ranks} ranks", word, found.sentence, lines=4)
    blocks = (headline, *_said(found), doc.Section("", (_table(found.rows),)))
    return doc.Document(blocks, summary=blocks)


def _said(found: RanksReport) -> Iterator[doc.Block]:
    facts = [doc.Fact("what to do", one.remedy, 3) for one in found.findings[:1]]
    facts += [doc.Fact("found besides", one.sentence, 3) for one in found.findings[1:]]
    if found.collective_s is not None and found.collective_quiet_s is not None and found.lost_s is not None:
        said = (
            f"{units.duration(found.collective_s)} a step once the last rank has come, "
            f"{units.duration(found.collective_quiet_s)} with nobody late; the median rank waits "
            f"{units.duration(found.lost_s)} for the last one"
        )
        facts.append(doc.Fact("collectives", said, 2))
    facts += [doc.Fact("note", note, 2) for note in found.notes]
    yield doc.Section("", (doc.Facts(tuple(facts)),))


def _table(rows: tuple[RankRow, ...]) -> doc.Table:
    cells = [
        (
            one.rank,
            one.host,
            one.state,
            f"{one.steps:,}",
            *(units.duration(value) if (value := getattr(one, name)) is not None else "-" for name in _TIMES.values()),
            f"{one.samples:,}" if one.samples is not None else "-",
        )
        for one in rows
    ]
    return doc.table(("rank", "host", "state", *doc.numeric("steps", *_TIMES, "samples")), cells)
