"""What was told beside a neighbour, held against what is true: rows, figures of each neighbour, the table. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Literal

from disturbed import PROJECT

Outcome = Literal["right", "undecided", "wrong", "failed"]
UNDECIDED = "inconclusive"
FASTER, SLOWER = ("clearly_faster", "faster"), ("clearly_slower", "slower")
NO_DIFFERENCE = ("no_difference", "equivalent")
GOALS = {"quiet": {"right": 0.98, "undecided": 0.02, "wrong": 0.0}, "beside": {"right": 0.90, "wrong": 0.0}}
_HEAD = ("neighbour", "", "diagnosed", "right", "undecided", "wrong", "failed", "named", "verdict after s", "most")
_HEAD += ("arms right", "undecided", "wrong")
_BUSY = 0.1  # share of the processors in use before a case above which its figures are provisional
_SAME = 0.02  # speeds this close are the same: a margin's worth


def diagnosed(report: Mapping[str, Any] | None, verdicts: Sequence[str], neighbour: str) -> dict[str, Any]:
    """A row of a diagnosis, from its report."""
    if report is None:
        return {"outcome": "failed"}
    verdict = report["verdict"]
    step = verdict["step_time_s"]
    return {
        "outcome": judged(verdict["bottleneck"], verdicts),
        "verdict": verdict["bottleneck"],
        "summary": verdict["summary"].replace(f"{PROJECT}/", ""),  # so that no figure names a machine's folders
        "confidence": round(verdict["confidence"], 3),
        "verdict_final_s": report["verdict"].get("verdict_final_s"),
        "step_ms": [round(1e3 * step[end], 3) for end in ("estimate", "low", "high")] if step else None,
        "attribution_ms": _milliseconds(verdict["attribution_s"]),
        **disturbance(report, neighbour),
    }


def judged(verdict: str, right: Sequence[str]) -> Outcome:
    """Whether a verdict is right."""
    if verdict in right:
        return "right"
    return "undecided" if verdict == UNDECIDED else "wrong"


def compared(report: Mapping[str, Any] | None, truth: Mapping[str, float], neighbour: str) -> dict[str, Any]:
    """A row of a comparison of arms: its outcome is that of its worst arm."""
    if report is None:
        return {"outcome": "failed"}
    arms = {}
    for arm in report["arms"]:
        speed = 1.0 if arm["role"] == "aa" else truth.get(arm["id"])
        if arm["role"] == "baseline" or speed is None:
            continue
        effect = arm["effect"]
        arms[arm["id"]] = {
            "decision": arm["decision"],
            "outcome": judged_arm(arm["decision"], speed),
            "ratio": [round(effect[end], 4) for end in ("estimate", "low", "high")] if effect else None,
            "truth": round(speed, 4),
        }
    order: tuple[Outcome, ...] = ("failed", "wrong", "undecided", "right")
    worst = min((arm["outcome"] for arm in arms.values()), key=order.index, default="failed")
    return {"outcome": worst, "arms": arms, **disturbance(report, neighbour)}


def judged_arm(decision: str | None, speed: float) -> Outcome:
    """Whether what is said of an arm is right; a word that is provisional is undecided."""
    if abs(speed - 1) <= _SAME:
        return "wrong" if decision in (*FASTER, *SLOWER) else "right"
    right, wrong = (FASTER, SLOWER) if speed > 1 else (SLOWER, FASTER)
    if decision in right:
        return "right"
    return "wrong" if decision in (*wrong, *NO_DIFFERENCE) else "undecided"


def disturbance(report: Mapping[str, Any], neighbour: str) -> dict[str, Any]:
    """What the report says of the machine, and whether it names the neighbour."""
    found = report.get("disturbance") or {}
    sentence = str(found.get("sentence", ""))
    words = {"none": "", "quota": "quota"}.get(neighbour, "others used")
    shares = {name: found.get(name) for name in ("steal_share", "foreign_share", "throttled_share")}
    return {"machine": sentence, "named": words in sentence, **shares}


def figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Neighbour to its counts of diagnoses and of arms, its median seconds, and whether the goals are met."""
    found = {}
    for neighbour in dict.fromkeys(row["neighbour"] for row in rows):
        own = [row for row in rows if row["neighbour"] == neighbour]
        skipped = [row["skipped"] for row in own if "skipped" in row]
        told = [row for row in own if row["kind"] == "diagnose" and "skipped" not in row]
        arms = [arm for row in own for arm in row.get("arms", {}).values()]
        after = [row["verdict_final_s"] for row in told if isinstance(row.get("verdict_final_s"), float)]
        counts = {
            name: sum(row["outcome"] == name for row in told) for name in ("right", "undecided", "wrong", "failed")
        }
        share = counts["right"] / len(told) if told else None
        goal = GOALS["quiet" if neighbour == "none" else "beside"]
        found[neighbour] = {
            **counts,
            "right_share": share,
            "met": None if share is None else share >= goal["right"] and not counts["wrong"],
            "named": sum(bool(row.get("named")) for row in told),
            "seconds_median": median(row["seconds"] for row in told) if told else None,
            "verdict_final_s_median": median(after) if after else None,
            "verdict_final_s_most": max(after, default=None),
            "arms": {name: sum(arm["outcome"] == name for arm in arms) for name in ("right", "undecided", "wrong")},
            "skipped": skipped[0] if skipped else None,
        }
    return found


def table(rows: Sequence[Mapping[str, Any]], words: Mapping[str, str], machine: str) -> str:
    """The results in Markdown: a row for each neighbour, then each target beside each of them, then the arms."""
    values = figures(rows)
    lines = [
        "# Diagnosis and comparisons beside neighbours made on purpose",
        "",
        f"{machine}. `python benchmarks/noise`; every figure is in `noise.json`.",
        "",
        *_provisional(rows),
        f"| {' | '.join(_HEAD)} |",
        "|---" * len(_HEAD) + "|",
    ]
    for name, found in values.items():
        if found["skipped"]:
            lines.append(f"| {name} | {words[name]}: skipped, {found['skipped']} |" + " |" * (len(_HEAD) - 2))
            continue
        told = sum(found[one] for one in ("right", "undecided", "wrong", "failed"))
        cells = [found[one] for one in ("right", "undecided", "wrong", "failed", "named")]
        cells += [
            _seconds(found["verdict_final_s_median"]),
            _seconds(found["verdict_final_s_most"]),
            *found["arms"].values(),
        ]
        lines.append(f"| {name} | {words[name]} | {told} | {' | '.join(map(str, cells))} |")
    lines += ["", "A dash is not run. In brackets what was said in place of the truth.", ""]
    lines += _grid([row for row in rows if row["kind"] == "diagnose"], list(values), "target", _told)
    lines += ["", "Speed beside the baseline, with its interval, what was said of it, and when all was said.", ""]
    lines += _grid(_each_arm(rows), list(values), "arm", _ratio)
    return "\n".join(lines) + "\n"


def _provisional(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """That something else ran as well, where it did."""
    busy = [row["others_before"] for row in rows if row.get("others_before", 0.0) > _BUSY]
    if not busy:
        return []
    counted = f"before {len(busy)} of {len(rows)} cases"
    said = f"Provisional: {counted} something else used the machine, {max(busy):.0%} of it at most."
    return [said, ""]


def _grid(rows: Sequence[Mapping[str, Any]], names: Sequence[str], what: str, say: Any) -> list[str]:
    cells = {(row["case"], row["neighbour"]): say(row) for row in rows}
    truths: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        truths.setdefault(row["case"], {}).setdefault(row["known"], []).append(row["neighbour"])
    lines = [f"| {what} | truth | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    for case, known in truths.items():
        # What is true beside one neighbour alone is said so.
        usual = max(known, key=lambda truth: len(known[truth]))
        others = [f" ({truth} beside {', '.join(known[truth])})" for truth in known if truth != usual]
        lines.append(
            f"| {case} | {usual}{''.join(others)} | {' | '.join(cells.get((case, name), '-') for name in names)} |"
        )
    return lines


def _each_arm(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"case": f"{row['case']}: {name}", "known": f"{arm['truth']:g}x", **arm}
        | {"neighbour": row["neighbour"], "seconds": row["seconds"]}
        for row in rows
        for name, arm in row.get("arms", {}).items()
    ]


def _told(row: Mapping[str, Any]) -> str:
    if "skipped" in row:
        return "-"
    said = "" if row["outcome"] == "right" else f" ({row.get('verdict') or row.get('error', 'no report')[:40]})"
    return f"{row['outcome']}{said}, {row['seconds']:.0f} s"


def _ratio(row: Mapping[str, Any]) -> str:
    if row["ratio"] is None:
        return str(row["decision"])
    estimate, low, high = row["ratio"]
    decision = str(row["decision"]).replace("_", " ")
    return f"{estimate:.3g} ({low:.3g} to {high:.3g}), {decision}, {row['seconds']:.0f} s"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _milliseconds(parts: Mapping[str, float] | None) -> dict[str, float] | None:
    return {name: round(1e3 * value, 3) for name, value in parts.items()} if parts else None
