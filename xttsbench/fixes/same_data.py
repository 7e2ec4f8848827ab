"""Results of the same-data check for each fix, from the trials of a verification: as read and as timed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.rounds import GUARD, ORIGINAL, ROUNDS
from xttsbench.fixes.service import SERVICE
from xttsbench.fixes.step import STEP_SEVERAL
from xttsbench.planning import AGAIN
from xttsbench.records.fix import FixSet, How, Semantics
from xttsbench.records.pipeline import Contents, Elements
from xttsbench.records.trial import TrialRecord
from xttsbench.samedata.judge import Timed, compare_timed, judge
from xttsbench.samedata.tolerance import same_training


def semantics_of(
    trials: Sequence[TrialRecord], originals: Sequence[Elements], unreadable: str | None
) -> dict[str, Semantics]:
    """Each fix, by configuration, beside what :func:`originals_of` gives."""
    said = _judged(trials, originals, unreadable)
    return {arm: as_timed(trials, arm, data, originals) for arm, data in said.items()}


def data_of(trials: Sequence[TrialRecord], arm: str) -> Semantics | None:
    """Result of the same-data check for one configuration, from the trials alone; ``None`` where it was not read."""
    return _judged(trials, *originals_of(trials), only=arm).get(arm)


def originals_of(trials: Sequence[TrialRecord]) -> tuple[list[Elements], str | None]:
    """The original's runs, and why nothing can be compared with them, where one could not be read."""
    originals = [trial for trial in trials if _guards(trial) and trial.spec.arm == ORIGINAL]
    failed = next((trial for trial in originals if trial.elements is None), None)
    why = f"the elements of the original could not be read: {failed.cause or failed.status}" if failed else None
    return [trial.elements for trial in originals if trial.elements is not None], why


def _guards(trial: TrialRecord) -> bool:
    return trial.spec.kind == "elements" and trial.spec.group == GUARD


def _judged(
    trials: Sequence[TrialRecord], originals: Sequence[Elements], unreadable: str | None, only: str | None = None
) -> dict[str, Semantics]:
    found: dict[str, Semantics] = {}
    for trial in trials:
        arm = trial.spec.arm or ""
        if not _guards(trial) or arm == ORIGINAL or only not in (None, arm):
            continue
        if trial.status != "ok" or trial.elements is None:
            said = f"with it the dataset could not be read: {trial.cause or trial.status}"
            if trial.spec.script is not None and trial.status == "raised" and trial.error is not None:
                ours = trial.error.type == InvalidInputError.__name__  # There is no edit, and the cause says why
                said = trial.error.message if ours else f"with it the script raised: {trial.error.message}"
            found[arm] = Semantics(equivalent=None, how="unknown", sentence=said)
        elif unreadable is not None or not originals:
            found[arm] = Semantics(equivalent=None, how="unknown", sentence=unreadable or "the original was not read")
        else:
            found[arm] = on_your_word(_compared(trial, trial.elements, originals), trial.spec.assume_pure)
    return found


def as_timed(
    trials: Sequence[TrialRecord],
    arm: str,
    data: Semantics,
    originals: Sequence[Elements],
    groups: Collection[str] = ROUNDS,
) -> Semantics:
    """The result of the same-data check with the comparison of the batches of timed runs, which are in these groups."""
    if data.equivalent is not True:
        return data
    timed, original = _contents(trials, groups, arm), _contents(trials, groups, ORIGINAL, ORIGINAL + AGAIN)
    rest = ""
    if timed:
        if data.how not in ("identical", "rounding") or any(run.random_ops or not run.ordered for run in originals):
            found = Timed(None, 0, sum(one.seen for own in timed.values() for one in own), "their order or values vary")
        else:
            found = compare_timed(original, timed, bits=data.how == "identical")
        told = {"timed_batches": found.compared, "timed_of": found.of, "timed_why_not": found.sentence or None}
        data = data.model_copy(update=told)
        if found.same is not True and found.compared:
            how: How = "unknown" if found.same is None else "different"
            return data.model_copy(update={"equivalent": found.same, "how": how, "sentence": f"{found.sentence}."})
        rest = "" if found.same else f"; the batches of the timed runs were not compared: {found.sentence}"
    checked = f" {data.checked[:1].upper()}{data.checked[1:]}{rest}." if data.checked else ""
    return data.model_copy(update={"sentence": f"{data.sentence.rstrip('.')}.{checked}"})


def on_your_word(data: Semantics, assumed: Sequence[str]) -> Semantics:
    """A proof with the functions that the user said are pure, on which it rests beside what was seen."""
    if data.equivalent is not True or not assumed:
        return data
    sentence = f"{data.sentence.rstrip('.')}; on your word, {', '.join(assumed)} depends on its arguments alone."
    return data.model_copy(update={"sentence": sentence})


def _contents(
    trials: Sequence[TrialRecord], groups: Collection[str], *arms: str
) -> dict[tuple[int, int | None], list[Contents]]:
    """Block and how much of the sources was read -> what batches held in the timed runs of these configurations."""
    found: dict[tuple[int, int | None], list[Contents]] = {}
    for trial in trials:
        if trial.spec.group in groups and trial.spec.arm in arms and trial.contents is not None:
            found.setdefault((trial.spec.block, trial.spec.source_limit), []).append(trial.contents)
    return found


def _compared(trial: TrialRecord, changed: Elements, originals: Sequence[Elements]) -> Semantics:
    """The data first; where the step was changed, what it trains too."""
    fixes = FixSet.parse(trial.spec.fix)
    data = judge(originals, changed, shared_out=SERVICE.name in fixes)
    if not fixes.of_step or data.equivalent is not True:
        return data
    again = originals[1] if len(originals) > 1 else originals[0]
    original, calls = originals[0], ""
    for fix in (fix for fix in fixes if fix.kind == STEP_SEVERAL.name):
        # Its loss is said once for all steps of a call.
        original, again = (one.model_copy(update={"losses": one.losses[-1:]}) for one in (original, again))
        calls = f"; callbacks of batches come once for {fix.number} of them"
    training = same_training(original, again, changed)
    sentence = f"{data.sentence.rstrip('.')}; {training.sentence}{calls}"
    told = {"sentence": sentence, "epochs": data.epochs, "rows": data.rows, "rows_of": data.rows_of}
    return training.model_copy(update=told)
