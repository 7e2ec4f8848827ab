"""What ``xttsbench optimize`` said of a case: the fixes that it accepted, and all that it tried. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def said(found: Mapping[str, Any]) -> dict[str, Any]:
    """What the command said: the accepted fixes, what they were predicted and found to give, and all that was tried."""
    row = {name: found[name] for name in ("seconds", "exit_code")}
    report = found["report"]
    if report is None:
        return row | {"fixes": None, "tried": [], "failed": f"optimize: {found['error']}"}
    results = report.get("fixes", ())
    best: Mapping[str, Any] = next((one for one in results if one["chosen"]), {})
    return row | {
        "fixes": best.get("name"),
        "predicted": predicted(best, report),
        "verified": best.get("verified_speedup"),
        "data_said": best.get("semantics"),
        "tried": [
            {
                "name": one["name"],
                "outcome": one["outcome"],
                "why": one["why"],
                "predicted": one["predicted_speedup"],
                "verified": (one["verified_speedup"] or {}).get("estimate"),
            }
            for one in results
        ],
    }


def predicted(best: Mapping[str, Any], report: Mapping[str, Any]) -> float | None:
    """The speed-up that was predicted of the accepted fixes: by the proposal, or by the model for the same ones."""
    if not best or best["predicted_speedup"] is not None:
        return best.get("predicted_speedup")
    alike = (one["speedup"] for one in report.get("predictions", ()) if set(one["fixes"]) == set(best["fixes"]))
    return next(alike, None)
