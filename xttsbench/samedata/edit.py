"""Whether the new version of a target yields the data of the old one: the judgement of any edit.

What the guard of the fixes asks (:mod:`xttsbench.samedata.judge`) is asked of an edit, too: of some thousand rows, and
in distribution where something is drawn at random. Digests (:mod:`xttsbench.samedata.whole`) say it of all rows that
there was time for. Where one epoch of shuffled samples is too large for the first, the second alone decide: the same
samples in each pass, in batches of the same sizes, in another order as often as before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from xttsbench.records.fix import Semantics
from xttsbench.records.pipeline import Elements, Place
from xttsbench.records.proof import Outcome
from xttsbench.samedata.judge import judge
from xttsbench.samedata.varying import judgement
from xttsbench.samedata.whole import first_difference, totals, whole_difference

_WORDS: Final = {"fixed pipeline": "NEW", "fixed one": "NEW", "original": "OLD"}
_PLACES: Final = {"sample": "row", "element": "batch", "elements": "batches"}
_WORD: Final = re.compile(rf"\b(?:(?:those of )?the ({'|'.join(_WORDS)})|({'|'.join(_PLACES)}))\b", re.IGNORECASE)
_MORE: Final = "give it more time (--budget), or the target fewer rows (--set)"


@dataclass(frozen=True, slots=True)
class Edit:
    """Judgement of an edit; places of the first difference in the old version and in the new one, where it has any."""

    outcome: Outcome
    semantics: Semantics
    old: Place | None = None
    new: Place | None = None

    @property
    def remedy(self) -> str:
        """Remedy that would prove what is not proved: that of a hazard, which its sentence names, or more time."""
        if self.outcome != "not proved":
            return ""
        named = [part.strip(" .") for part in self.semantics.sentence.split(";")[1:]]
        return "; ".join(dict.fromkeys(named)) or _MORE


def judge_edit(originals: Sequence[Elements], new: Elements, *, any_order: bool) -> Edit:
    """Judge an edit from three runs of the old version, the last with another seed, and one of the new one.

    All are read whole, the new one with the seed of the first; with ``any_order`` samples may come in another order.
    """
    if originals[0].last_batch_kept != new.last_batch_kept:
        kept, who = (new, "NEW") if new.last_batch_kept else (originals[0], "OLD")
        sizes = [[len(element.rows) for element in epoch.elements] for epoch in kept.epochs if epoch.ended]
        if any(one and one[-1] < one[0] for one in sizes):
            sentence = f"only {who} keeps the last, smaller batch of an epoch, whose samples the other leaves out"
            return Edit("differs", judgement(False, "different", sentence))
        originals = [run.model_copy(update={"last_batch_kept": new.last_batch_kept}) for run in originals]
    promised = all(run.ordered for run in originals)
    strict = _judged(originals, new, ordered=promised)
    if strict.outcome == "same" or not promised:
        return strict
    loose = _judged(originals, new.model_copy(update={"ordered": False}), ordered=False)
    if any_order or loose.outcome != "same":
        return loose if any_order else strict
    why = strict.semantics.sentence.rstrip(".")
    known = "" if "another order" in why else ": the samples are the same, in another order"
    sentence = f"{why}{known}; --any-order allows that."
    return Edit("reordered", loose.semantics.model_copy(update={"sentence": sentence}), strict.old, strict.new)


def _judged(originals: Sequence[Elements], new: Elements, *, ordered: bool) -> Edit:
    """Judge what was seen of some rows, then all that was digested."""
    found = _moved(originals, new) or judge(originals, new, allow_other_order=not ordered)
    change = {
        "sentence": _WORD.sub(lambda one: _WORDS[one[1].lower()] if one[1] else _PLACES[one[2].lower()], found.sentence)
    }
    first = originals[0].whole[0]
    found = found.model_copy(update=change | ({"rows_of": sum(first.rows)} if first.ended else {}))
    place = None
    if found.equivalent is not False and found.how != "rounding":
        place = whole_difference(originals, new, ordered=ordered)
    lengths = originals[0].cardinality, new.cardinality
    if place is not None or (found.equivalent and lengths[0] != lengths[1] and min(lengths) > -2):
        sentence = place.sentence if place else f"an epoch has {lengths[0]} batches in OLD, {lengths[1]} in NEW"
        found = found.model_copy(update=dict(judgement(False, "different", sentence)))
    if found.equivalent is False:
        where = place if place and place.new else first_difference(originals, new, ordered=ordered)
        return Edit("differs", found, where.old if where else None, where.new if where else None)
    if found.equivalent and found.how in ("identical", "other order"):
        rows = min(sum(run.whole[0].rows) for run in (*originals, new))
        found = found.model_copy(update={"rows": max(rows, found.rows)})
    return Edit("same" if found.equivalent else "not proved", found)


def _moved(originals: Sequence[Elements], new: Elements) -> Semantics | None:
    """Judgement by digests alone of epochs that have more rows than fingerprints hold, and in which all rows move.

    ``None`` for others. Other samples, and batches of other sizes, are told from the digests afterwards.
    """
    runs = (*originals, new)
    stays = all(run.whole[0].elements[0] == originals[0].whole[0].elements[0] for run in originals)
    if stays or all(run.epochs[0].ended for run in runs):
        return None
    passes = min(len(run.whole) for run in runs)
    first = [run.whole[0] for run in originals]
    if passes < 2 or not all(one.ended and totals(one) == totals(first[0]) for one in first):
        return judgement(None, "unknown", f"too few of the rows, which move or vary at random, could be read; {_MORE}")
    *before, now = [len({one.elements for one in run.whole[:passes]}) for run in runs]
    if now < min(before):
        return judgement(False, "different", f"the order of {passes} epochs is frozen, where that of OLD is not")
    said = f"the same samples of {passes} epochs come in another order, shuffled as before"
    return judgement(True, "other order", said, len(first[0].elements), passes)
