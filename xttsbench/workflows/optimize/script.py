"""What running a script again takes: that it may be, and what its trials know of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from xttsbench.records.base import Location, name_and_place
from xttsbench.records.plan import RunPlan
from xttsbench.records.trial import ScriptAgain, ScriptRun, TrialRecord

_NAMED: Final = 3
SCRATCH: Final = "scratch"
"""Directory of a run over which the memory lies that takes what a script writes."""
IN_GRAPH: Final = "the loop of the script lies within one tf.function, where nothing can be held up"
_REPEAT: Final = "Say --repeat if it may do so again."


def script_run(trials: Sequence[TrialRecord]) -> ScriptRun | None:
    """What was seen of the script in its first run; ``None`` of another target."""
    return trials[0].script if trials else None


def why_not_again(plan: RunPlan, script: ScriptRun) -> str | None:
    """Why fixes of a script are not verified, in one sentence; ``None`` where it may run again.

    What a script writes is no reason where it can be redirected. What it tells other machines always is one, and so
    is a script that was only to be diagnosed, unless ``--repeat`` was said.
    """
    if script.data is None:
        return "the script fed its training loop from no tf.data.Dataset that could be seen"
    if plan.repeat:
        return None
    if plan.kind != "optimize":
        return "a script is run once; say --repeat if it may run again, or use xttsbench optimize"
    if script.contacted:
        return f"the script connected to {_listed(script.contacted)}, which another run would do again. {_REPEAT}"
    if script.wrote and script.not_redirected is not None:
        why = script.not_redirected
        return f"the script wrote {_listed(script.wrote)}, and it cannot be kept from that here: {why}. {_REPEAT}"
    return None


def again(script: ScriptRun, directory: Path, no_edit: str | None = None) -> ScriptAgain | None:
    """What trials of its fixes know of a script; ``no_edit`` is why the source of its step cannot be changed."""
    if script.data is None:
        return None
    return ScriptAgain(
        data=script.data,
        trains=script.trains,
        in_graph=script.in_one_call,
        step=None if _is_keras(script) else script.step_function,
        no_edit=no_edit,
        redirected=script.not_redirected is None,
        directory=str(directory.absolute()),
    )


def said_again(script: ScriptRun) -> str:
    """The sentence by which the user learns that the script runs several times, and what becomes of its writes."""
    if script.not_redirected is None:
        writes = "what it writes meanwhile goes to memory and is gone with it"
    elif script.wrote:
        writes = f"it writes {_listed(script.wrote)} again each time"
    else:
        writes = "it wrote nothing"
    return f"the script runs again, as it is and with each fix; {writes}"


def step_place(script: ScriptRun, file: str) -> Location | None:
    """Where the function that takes the batch is defined; ``None`` where a Keras model is trained.

    Of a step that is written out in the loop it is the script's ``file``, without a line.
    """
    _, place = name_and_place(script.step_function)
    if _is_keras(script):
        return None
    return place if place.file else Location(file=file)


def _is_keras(script: ScriptRun) -> bool:
    return "fit" in script.iterations


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + rest
