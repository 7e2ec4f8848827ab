"""The table of the page on gates: the smallest limit that equal code passes, from the code that judges a gate.

``make docs`` writes it and a test fails where the stored one is old::

    python docs/limits.py
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import NormalDist, stdev

from xttsbench.analysis.evidence import Sample, paired, unpaired
from xttsbench.comparison.effects import SESSION_NOISE, decide_pairs

PAGE = Path(__file__).parent / "gates.md"
PROCESSES = (2, 3, 5, 8, 12, 30)
SPREADS = (0.01, 0.03)


def table() -> str:
    """Per cent that a limit and a difference take, by processes a side and by what they differ by."""
    heads = [f"{kind}, {spread:.0%}" for kind in ("one run", "two runs") for spread in SPREADS]
    lines = [f"| processes of each side | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for processes in PROCESSES:
        cells = [_cell(processes, spread, two=two) for two in (False, True) for spread in SPREADS]
        lines.append(f"| {processes} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(processes: int, spread: float, *, two: bool) -> str:
    """Smallest limit, and smallest difference that gets a word."""
    sample = _equal(processes, spread, two=two)
    effect = decide_pairs({"b": sample}, margin=0.02, session_noise=SESSION_NOISE if two else None)["b"]
    visible = effect.smallest_visible_effect
    assert visible is not None
    return f"{1 - effect.interval(0.95).low:.1%}, {visible:.0%}"


def _equal(processes: int, spread: float, *, two: bool) -> Sample:
    """Sides of equal mean whose processes differ as a normal sample of that standard deviation does."""
    drawn = [NormalDist().inv_cdf((at + 0.5) / processes) for at in range(processes)]
    logs = [one * spread / stdev(drawn) for one in drawn]
    return unpaired(logs, logs) if two else paired([one * 2**0.5 for one in logs], [*range(processes)])


def written() -> dict[Path, str]:
    """The page with its table made anew."""
    text = PAGE.read_text(encoding="utf-8")
    pattern = r"^\| processes of each side \|.*?(?=\n\n)"
    return {PAGE: re.sub(pattern, lambda _: table(), text, count=1, flags=re.MULTILINE | re.DOTALL)}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
