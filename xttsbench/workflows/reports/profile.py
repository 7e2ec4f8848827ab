"""Section of a report on a profiled window: NVML's readings meanwhile, and XProf's verdict beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from xttsbench.analysis.readings import beside_profile
from xttsbench.records.readings import XProfVerdict
from xttsbench.records.report import Verdict
from xttsbench.records.trial import TrialRecord

_CLOSE: Final = 0.05  # Shares of a step that differ by less are the same


def profile_section(
    trials: Sequence[TrialRecord], said: Verdict, environment: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The profiled window, with what NVML read meanwhile and with XProf's verdict beside ours."""
    trial = next((trial for trial in trials if trial.profile is not None), None)
    if trial is None or trial.profile is None:
        return None
    profile, gpu, xprof = trial.profile, trial.profile.gpu, trial.profile.xprof
    found = profile.model_dump(mode="json")
    if gpu is not None:
        variables = environment.get("variables")
        mask = variables.get("CUDA_VISIBLE_DEVICES") if isinstance(variables, Mapping) else None
        found |= {"nvml": beside_profile(gpu, trial.readings, mask)}
    if xprof is not None:
        measured = said.input_wait_fraction.estimate if said.input_wait_fraction else None
        step_s, wait_s = (gpu.step_s, gpu.host_s.get("input")) if gpu is not None else (None, None)
        waits = wait_s / step_s if wait_s is not None and step_s else None
        slowed = step_s / said.step_time_s.estimate if step_s and said.step_time_s else None
        why = difference(xprof, said.bottleneck, measured=measured, profiled=waits, slowed=slowed)
        found["agreement"] = {
            "verdict": said.bottleneck,
            "xprof": xprof.says,
            "agree": None if said.bottleneck == "inconclusive" else why is None,
            "why": why,
            "input_share_measured": measured,
            "input_share_profiled": waits,
            "input_share_xprof": xprof.input_share,
            "slowed_by_profiler": slowed,
        }
    return found


def difference(
    said: XProfVerdict, bottleneck: str, *, measured: float | None, profiled: float | None, slowed: float | None
) -> str | None:
    """Why XProf and our ``bottleneck`` differ on whether the input limits the step; ``None`` where they agree.

    Of a step, the share that waits for input is ``measured`` over all steps without a profiler, and ``profiled`` in the
    window, from the time inside ``next()``; ``slowed`` is the time of a step of that window over that of a measured
    one.
    """
    if bottleneck == "inconclusive":
        return "there is nothing to hold against XProf's"
    if said.says == ("input" if bottleneck == "input" else "not input"):
        return None
    if said.says == "nothing":
        return "XProf found no step in the profile, and without one it says nothing"
    here = "" if profiled is None else f"; next() takes {profiled:.0%} of it"
    if said.says == "perhaps input":
        return f"XProf cannot tell: time without an event, such as Python's own, may be the input to it{here}"
    if measured is not None and profiled is not None and abs(profiled - measured) > _CLOSE:
        times = f", where a step took {slowed:.2g} times as long" if slowed is not None and slowed > 1 + _CLOSE else ""
        return (
            f"XProf sees the {profiled:.0%} that the profiled steps wait{times}; over all steps measured without the "
            f"profiler it is {measured:.0%}"
        )
    if said.says == "input":
        share = "" if said.input_share is None else f", here {said.input_share:.0%}"
        return f"XProf calls a step input-bound from 5% of waiting on{share}; the verdict goes to what would gain most"
    where = "only where no event of higher rank runs, such as the device's, and only inside TensorFlow's own op"
    return f"XProf counts waiting {where}{here}"
