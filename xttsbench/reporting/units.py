"""Numbers as a person reads them: three significant digits, the unit that fits, intervals in one unit.

Everything that prints a number goes through here, so the same number looks the same in every output. Nothing here
knows "not measured": a caller that has ``None`` has no number to format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Final

from xttsbench.records import pipeline
from xttsbench.records.base import Estimate

_TIME_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_PER: Final = re.compile(r"(?P<what>.+)_(?P<unit>s|bytes)_per_(?P<base>(?!s$).+)")
size: Final = pipeline.size
_LONG_S: Final = 120.0  # From here on a duration is told in minutes, from 60 times that in hours


def number(value: float) -> str:
    """Three significant digits with thousands separators; integers in full: ``12,345``, ``0.0123``, ``1.50``."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return str(value)
    if value and not 1e-4 <= abs(value) < 1e12:
        return f"{value:.2e}"
    return _fixed(float(f"{value:.3g}"), _decimals(value))


def duration(seconds: float) -> str:
    """``27.3 s``, ``4.20 ms``, ``310 µs``, ``3 min 20 s``, ``2 h 5 min``; zero is ``0 s``."""
    if seconds == 0:
        return "0 s"
    if math.isfinite(seconds) and abs(seconds) >= _LONG_S:
        return ("-" if seconds < 0 else "") + _long(round(abs(seconds)))
    scale, unit = _time_unit(seconds)
    return f"{number(seconds / scale)} {unit}"


def duration_interval(estimate: Estimate) -> str:
    """``42.1 ms (40.9 to 43.5)``: the bounds in the unit and to the decimals of the estimate."""
    return _joined(duration_bounds(estimate))


def duration_bounds(estimate: Estimate) -> tuple[str, str]:
    """``42.1 ms`` and ``40.9 to 43.5``, for where the two do not stand in one line."""
    scale, unit = _time_unit(estimate.estimate)
    return _bounds(estimate, scale, _decimals(estimate.estimate / scale), f" {unit}")


def percent(share: float) -> str:
    """A share as a percentage with one decimal: ``64.1 %``; what would round to zero is ``<0.1 %``."""
    value = 100.0 * share
    if 0 < abs(value) < 0.05:
        return "<0.1 %" if value > 0 else ">-0.1 %"
    return f"{value:.1f} %"


def percents(shares: Sequence[float]) -> list[str]:
    """Parts of one whole as percentages that add up to it: rounding is made good by the parts that it moves least.

    Parts of a tenth and more, and the largest one, stay as :func:`percent` has them: they are said elsewhere too.
    """
    tenths = [round(1000.0 * share) for share in shares]
    off = round(1000.0 * sum(shares)) - sum(tenths)
    step = 1 if off > 0 else -1
    smaller = sorted(range(len(shares)), key=shares.__getitem__)[:-1]
    moved = sorted(smaller, key=lambda at: (shares[at] >= 0.1, step * (tenths[at] - 1000.0 * shares[at])))
    for at in [at for at in moved if shares[at] > 0 and tenths[at] + step > 0][: abs(off)]:
        tenths[at] += step  # of which "<0.1 %" has room in it
    said = zip(shares, tenths, strict=True)
    return [f"{tenth / 10:.1f} %" if round(1000.0 * share) else percent(share) for share, tenth in said]


def probability(value: float) -> str:
    """``84 %``, or ``over 99 %``: draws that all agree make nothing certain."""
    return "over 99 %" if value > 0.99 else f"{100.0 * value:.0f} %"


def percent_interval(estimate: Estimate) -> str:
    """``64.1 % (60.2 to 68.0)``."""
    return _joined(percent_bounds(estimate))


def percent_bounds(estimate: Estimate) -> tuple[str, str]:
    """``64.1 %`` and ``60.2 to 68.0``."""
    return _bounds(estimate, 0.01, 1, " %")


def evidence(value: float) -> str:
    """An e-value: ``0.3``, ``42``, ``1,240``, ``more than 1,000,000``; its exact size says nothing beyond that."""
    return "more than 1,000,000" if value > 1e6 else number(round(value)) if value >= 10 else f"{value:.2g}"


def ratio(value: float) -> str:
    """A speed-up: ``1.043x``, ``5.61x``; three decimals near 1, where the margin of decision is 0.02."""
    return f"{_fixed(value, _ratio_decimals(value))}x"


def ratio_interval(estimate: Estimate) -> str:
    """``1.843x (1.790 to 1.899)``; ``2.04x`` of one without a width, such as a model's."""
    return _joined(ratio_bounds(estimate)) if estimate.low < estimate.high else ratio(estimate.estimate)


def ratio_bounds(estimate: Estimate) -> tuple[str, str]:
    """``1.843x`` and ``1.790 to 1.899``."""
    return _bounds(estimate, 1.0, _ratio_decimals(estimate.estimate), "x")


def count_range(estimate: Estimate) -> str:
    """The interval of a whole number: ``3``, or ``3 to 5``."""
    low, high = f"{estimate.low:,.0f}", f"{estimate.high:,.0f}"
    return low if low == high else f"{low} to {high}"


def rate_interval(estimate: Estimate) -> str:
    """``120 /s (118 to 123)``."""
    return _joined(rate_bounds(estimate, unit=" /s"))


def rate_bounds(estimate: Estimate, *, unit: str = "") -> tuple[str, str]:
    """``120`` and ``118 to 123``, for a column whose head names the unit."""
    return _bounds(estimate, 1.0, _decimals(estimate.estimate), unit)


def named(name: str, value: object) -> tuple[str, str]:
    """A record's key and value as words: the unit in the name moves to the number.

    ``("wait_s", 0.0042)`` gives ``("wait", "4.20 ms")``, ``("wait_s_per_step", 0.0042)`` gives ``("wait per step",
    "4.20 ms")``, ``("cost_share", 0.5)`` gives ``("cost share", "50.0 %")``.
    """
    if found := _PER.fullmatch(name):  # the unit is in the middle: seconds per batch
        name = f"{found['what']}_per_{found['base']}_{found['unit']}"
    suffix = _suffix(name)
    bare = name.removesuffix(suffix).strip("_") if suffix in _UNITS else name
    label = (bare or name).replace("_", " ")
    if isinstance(value, bool):
        return label, "yes" if value else "no"
    if value is None:
        return label, "not measured"
    if not isinstance(value, int | float):
        return label, str(value)
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e12
    return label, _SUFFIXES.get(suffix, number)(int(value) if whole else value)


def unit(name: str) -> str:
    """The unit at the end of a field's name, such as ``s`` or ``bytes``; empty where there is none."""
    return suffix if (suffix := _suffix(name)) in _UNITS else ""


def _suffix(name: str) -> str:
    return next((suffix for suffix in _SUFFIXES if f"_{name}".endswith(f"_{suffix}")), "")


def _decimals(value: float) -> int:
    rounded = abs(float(f"{value:.3g}"))
    return max(0, 2 - math.floor(math.log10(rounded))) if rounded and math.isfinite(rounded) else 0


def _ratio_decimals(value: float) -> int:
    return 3 if abs(value) < 2 else _decimals(value)


def _fixed(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}"


def _bounds(estimate: Estimate, scale: float, decimals: int, unit: str) -> tuple[str, str]:
    value, low, high = (_fixed(x / scale, decimals) for x in (estimate.estimate, estimate.low, estimate.high))
    return f"{value}{unit}", f"{low} to {high}"


def _joined(parts: tuple[str, str]) -> str:
    return f"{parts[0]} ({parts[1]})"


def _time_unit(seconds: float) -> tuple[float, str]:
    """Scale in seconds and name of the unit that leaves one to three digits before the point, after rounding."""
    if seconds == 0 or not math.isfinite(seconds):
        return _TIME_UNITS[0]
    rounded = abs(float(f"{seconds:.3g}"))
    return next(((scale, unit) for scale, unit in _TIME_UNITS if rounded >= scale * (1 - 1e-9)), _TIME_UNITS[-1])


def _long(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    if seconds < 60 * _LONG_S:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


_UNITS: Final[dict[str, Callable[[float], str]]] = {
    "bytes_per_s": lambda value: f"{size(value)}/s",
    "per_s": lambda value: f"{number(value)} /s",
    "s": duration,
    "ms": lambda value: duration(value / 1e3),
    "ns": lambda value: duration(value / 1e9),
    "bytes": size,
}
"""Suffix of a field's name that is a unit, and goes to the number."""
_SUFFIXES: Final[dict[str, Callable[[float], str]]] = {
    **_UNITS,
    "share": percent,
    "fraction": percent,
    "utilization": percent,
    "speedup": ratio,
    "ratio": ratio,
}
"""All suffixes that say how a number is written; the first that fits counts."""
