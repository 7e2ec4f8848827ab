"""Data of all plots: the report, and the steps of each process as NumPy arrays in seconds; and as tables.

Time zero is a process's first step. A column that the trial did not record becomes NaN (or ``None`` for a whole
optional quantity), never 0. Compared configurations stand beside one another over the same time, one process of each
from the same repeat (:func:`side_runs`), with the utilization that the table of the comparison has. The page draws the
steps of one process itself (:func:`time_line`): of many the fastest and the slowest of each of some thousand stretches
are kept, so that no stall is lost from the picture; the sums up to each kept step are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xttsbench.analysis.readings import trace
from xttsbench.analysis.rhythm import autocorrelation, periodogram, varies
from xttsbench.analysis.steps import Steps, steady, steps_of
from xttsbench.records.readings import GpuReadings
from xttsbench.records.report import Report, Variant
from xttsbench.records.trial import Segment, TrialRecord
from xttsbench.reporting import units
from xttsbench.reporting.document import NOT_MEASURED, Block, Table, numeric, table
from xttsbench.reporting.sections import Group, compares, figures_of, groups, of_verdict, trials_of
from xttsbench.reporting.words import ARM_COLORS, SERIES_COLORS, plain

FloatArray = NDArray[np.float64]
_LONGEST_LABEL = 40
_OTHER_TARGETS = frozenset({"fix", "arm", "parity"})


@dataclass(frozen=True, slots=True, eq=False)
class StepSeries:
    """Steps of one segment of one process; every array has one entry per step, shape (steps,)."""

    label: str
    zero_ns: int  # ``time.perf_counter_ns`` of the first step's start, to align readings with the steps
    wall_s: FloatArray
    wait_s: FloatArray
    step_s: FloatArray
    accelerator_s: FloatArray | None  # Time of the emulated accelerator within each step; ``None`` without one
    cpu_s: FloatArray  # Processor time of the whole process within each step
    steady_from: int  # Index of the first step of the steady state

    @property
    def end_s(self) -> FloatArray:
        """End of each step, from the first one's start: the wall times leave no gap between steps."""
        return np.cumsum(self.wall_s)

    @property
    def steady_wall_s(self) -> FloatArray:
        """Wall time of the steps of the steady state."""
        return self.wall_s[self.steady_from :]


def from_segment(segment: Segment, *, label: str) -> StepSeries | None:
    """The segment's steps; ``None`` where it has none, or not their start and wall time.

    The steady state begins where the report cuts what follows the segment's own warm-up.
    """
    if segment.steps == 0 or "start_ns" not in segment.columns or "wall_ns" not in segment.columns:
        return None
    emulated_s = _seconds(segment, "emulated_ns")
    return StepSeries(
        label=label,
        zero_ns=segment.columns["start_ns"][0],
        wall_s=_seconds(segment, "wall_ns"),
        wait_s=_seconds(segment, "wait_ns"),
        step_s=_seconds(segment, "step_ns"),
        accelerator_s=emulated_s if np.any(emulated_s > 0) else None,
        cpu_s=_seconds(segment, "cpu_ns"),
        steady_from=min(segment.warmup_steps, segment.steps) + steady(steps_of(segment))[1].cut,
    )


def _seconds(segment: Segment, column: str) -> FloatArray:
    values = segment.columns.get(column)
    if values is None:
        return np.full(segment.steps, np.nan)
    return np.array(values, dtype=np.float64) / 1e9


@dataclass(frozen=True, slots=True)
class Scene:
    """The report and the series of the target as it is (or of the baseline), one per process."""

    report: Report
    series: tuple[StepSeries, ...] = ()
    main: StepSeries | None = None
    """The series with the most steady steps: time series statistics are of one process, never of pooled ones."""
    record: TrialRecord | None = None  # The trial that ``main`` comes from
    trials: tuple[TrialRecord, ...] = ()  # All trials, for the plots of compared configurations

    @property
    def why_empty(self) -> str:
        """Why there is nothing to draw."""
        return self.report.unmeasured.get("verdict.step_time_s", "No step of the target as it is was measured.")


def stage(report: Report, trials: Sequence[TrialRecord]) -> Scene:
    """Collect what the plots need: the target as it is, or the baseline where configurations were compared.

    Trials without such steps are left out, and those with a fix or of another configuration: they are not the original.
    """
    found = [
        (series, record)
        for record in _original(report, trials)
        if (segment := record.segment("as_is"))
        and (series := from_segment(segment, label=plain(record.spec.trial_id)[:_LONGEST_LABEL]))
    ]
    main, record = max(found, key=lambda pair: pair[0].steady_wall_s.size, default=(None, None))
    return Scene(report, tuple(series for series, _ in found), main, record, tuple(trials))


def _original(report: Report, trials: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
    group = of_verdict(report) if compares(report) or report.training is not None else None
    if group is not None and group.baseline is not None:
        return trials_of(group, group.baseline, groups(report), trials)
    return [record for record in trials if record.spec.kind not in _OTHER_TARGETS]


def extremes(wall_s: FloatArray, stretches: int) -> NDArray[np.int64]:
    """Positions of steps to draw, ascending: all, or the fastest and the slowest of each of so many stretches."""
    if wall_s.size <= 2 * stretches:
        return np.arange(wall_s.size)
    edges = np.linspace(0, wall_s.size, stretches + 1).astype(np.int64)
    pairs = ((low + wall_s[low:high].argmin(), low + wall_s[low:high].argmax()) for low, high in pairwise(edges))
    return np.unique(np.array([0, wall_s.size - 1, *chain.from_iterable(pairs)], dtype=np.int64))


MOST_ARMS: Final = 3
"""So many configurations are all shown; of more, the baseline and the best candidate."""
_MOVES_PER_WINDOW: Final = 8
_GPU: Final = "GPU (driver)"
_OTHERS: Final = (SERIES_COLORS[2], SERIES_COLORS[3], SERIES_COLORS[5])


@dataclass(frozen=True, slots=True, eq=False)
class SideRun:
    """The steps of one process of one configuration; ``block`` is the repeat that it is of."""

    arm: Variant
    color: str
    block: int
    record: TrialRecord
    series: StepSeries


def side_runs(group: Group, scene: Scene) -> tuple[SideRun, ...]:
    """The configurations to show, of the first repeat that has them all, else of the first that each has."""
    every = groups(scene.report)
    chosen = _chosen(group)
    found = {
        arm.id: {
            record.spec.block: (record, series)
            for record in reversed(trials_of(group, arm, every, scene.trials))
            if (series := _series(record)) is not None
        }
        for arm in chosen
    }
    measured = [set(of_arm) for of_arm in found.values() if of_arm]
    blocks = sorted(set.intersection(*measured)) if measured else []
    colors = iter((ARM_COLORS["faster"], *_OTHERS))
    runs = []
    for arm in chosen:
        color = ARM_COLORS["baseline"] if arm.role == "baseline" else next(colors)
        if of_arm := found[arm.id]:
            block = blocks[0] if blocks else min(of_arm)
            runs.append(SideRun(arm, color, block, *of_arm[block]))
    return tuple(runs)


def _chosen(group: Group) -> tuple[Variant, ...]:
    first = () if group.baseline is None else (group.baseline,)
    arms = (*first, *group.candidates)
    return arms if len(arms) <= MOST_ARMS else arms[:2]


def _series(record: TrialRecord) -> StepSeries | None:
    if (segment := record.segment("as_is")) is None:
        return None
    columns = {name: values[segment.warmup_steps :] for name, values in segment.columns.items()}
    return from_segment(Segment(name=segment.name, columns=columns), label="")


def utilization(run: SideRun, window_s: float) -> tuple[FloatArray, FloatArray]:
    """Rolling share of the time that is busy, at the middle of each window, in moves of an eighth of one.

    The window is triangular (Bartlett's): a step that enters or leaves it moves the curve a little, not at once.
    """
    series = run.series
    if has_samples(run):
        return _sampled(run, window_s)
    busy_s = series.step_s if series.accelerator_s is None else series.accelerator_s
    t_s, share = trace(series.end_s, busy_s, window_s=window_s / _MOVES_PER_WINDOW)
    whole = share[: t_s.size - 1] if t_s.size > _MOVES_PER_WINDOW else share  # the last may be narrower than the others
    width = min(_MOVES_PER_WINDOW, whole.size)
    weights = np.bartlett(width + 2)[1:-1]
    rolled = np.convolve(whole, weights / weights.sum(), "valid")
    return t_s[width // 2 : width // 2 + rolled.size], rolled


def has_samples(run: SideRun) -> bool:
    """Whether the utilization is the driver's and not of the steps' own clock."""
    return run.series.accelerator_s is None and run.arm.utilization_of == _GPU


def _sampled(run: SideRun, window_s: float) -> tuple[FloatArray, FloatArray]:
    times = [np.array(gpu.utilization_t_ns, dtype=np.int64) - run.series.zero_ns for gpu in run.record.readings.gpus]
    shares = [np.array(gpu.utilization, dtype=np.float64) for gpu in run.record.readings.gpus]
    t_s = np.concatenate([np.empty(0), *times]) / 1e9
    share = np.concatenate([np.empty(0), *shares])
    windows = max(1, int(np.ceil(run.series.end_s[-1] / window_s)))
    place = np.floor(t_s / window_s)
    middles, means = [], []
    for window in range(windows):
        if (inside := place == window).any():
            middles.append((window + 0.5) * window_s)
            means.append(float(share[inside].mean()))
    return np.array(middles), np.array(means)


MOST_STRETCHES: Final = 4_000
"""Twice as many steps are drawn at most: about the points of a wide screen."""
_ROWS: Final = 24
_WINDOWS: Final = 200
_STEPS_PER_WINDOW: Final = 4
_MOST_SAMPLES: Final = 2_000
PARTS: Final = {"input": "waiting for input", "compile": "tracing and compiling", "host": "work between steps"}
"""Part of a step's wall time to what it is; the rest of it is the step itself."""


@dataclass(frozen=True, slots=True)
class Use:
    """A share of time in use: its name, and points of time (seconds) with shares (0..1)."""

    name: str
    t_s: tuple[float, ...]
    share: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TimeLine(Block):
    """Data of the time line that a script draws, and the same in a table.

    Attributes:
        data: ``n`` (number of a step), ``t`` (its end, seconds from the first one's start), ``wall`` and the parts of
            it in seconds, ``waited`` (sum of the waits so far), ``compiled`` (numbers of the steps that traced or
            compiled), ``warm`` (end of the warm-up), ``use`` (shares of time in use) and ``use_of`` (of what).
    """

    caption: str
    parts: tuple[str, ...]
    data: Mapping[str, object]
    table: Table


def samples_of(gpu: GpuReadings, series: StepSeries) -> tuple[FloatArray, FloatArray]:
    """The driver's samples during the steps: seconds since the first step, and shares of the time in use (0..1)."""
    t_s = (np.array(gpu.utilization_t_ns, dtype=np.int64) - series.zero_ns) / 1e9
    during = (t_s >= 0) & (t_s <= series.end_s[-1])
    return t_s[during], np.array(gpu.utilization, dtype=np.float64)[during]


def time_line(scene: Scene | None) -> TimeLine | None:
    """The time line of the process with the most steady steps; ``None`` where there are no steps."""
    if scene is None or scene.main is None or scene.record is None:
        return None
    segment = scene.record.segment("as_is")
    if segment is None:
        return None
    series, steps = scene.main, steps_of(segment.model_copy(update={"warmup_steps": 0}))
    count, parts = series.wall_s.size, _parts(segment, steps)
    kept = extremes(series.wall_s, MOST_STRETCHES)
    compiled = np.flatnonzero(steps.compiling) + 1
    use_of, uses = _uses(scene, series)
    waited = np.cumsum(parts["input"]) if "input" in parts else None
    data: dict[str, object] = {
        "n": (kept + 1).tolist(),
        "t": _rounded(series.end_s[kept]),
        "wall": _short(series.wall_s[kept]),
        **{name: _short(seconds[kept]) for name, seconds in parts.items()},
        "waited": None if waited is None else _rounded(waited[kept]),
        "compiled": compiled[:MOST_STRETCHES].tolist(),
        "warm": round(float(series.end_s[series.steady_from - 1]), 6) if 0 < series.steady_from < count else 0.0,
        "use_of": use_of,
        "use": [{"name": use.name, "t": _rounded(use.t_s), "share": _short(use.share)} for use in uses],
    }
    said = f"{count:,} steps of process {series.label}, one after the other"
    if kept.size < count:
        said += f"; drawn are the fastest and the slowest of every {-(-count // MOST_STRETCHES):,}"
    return TimeLine(f"{said}.", tuple(parts), data, _table(series, parts, compiled, uses))


def _parts(segment: Segment, steps: Steps) -> dict[str, FloatArray]:
    known = segment.columns
    found: dict[str, FloatArray] = {}
    if "wait_ns" in known:
        found["input"] = np.maximum(steps.wait_s, 0.0)
    if "step_ns" in known and steps.compiling.any():
        found["compile"] = steps.compile_s
    if "wait_ns" in known and "step_ns" in known:
        found["host"] = np.maximum(steps.wall_s - steps.pause_s - steps.wait_s - steps.step_s, 0.0)
    return found


def _uses(scene: Scene, series: StepSeries) -> tuple[str, tuple[Use, ...]]:
    """The best account of utilization that there is: emulated accelerator, GPU, else the processors."""
    record = scene.record
    window_s = max(float(series.end_s[-1]) / _WINDOWS, _STEPS_PER_WINDOW * float(series.wall_s.mean()))
    if record is None or window_s <= 0:
        return "", ()
    if series.accelerator_s is not None:
        return "EMULATED accelerator in use", (_use("emulated accelerator", series, series.accelerator_s, window_s),)
    gpus = []
    for gpu in record.readings.gpus:
        t_s, share = (one[:: max(1, len(gpu.utilization) // _MOST_SAMPLES)] for one in samples_of(gpu, series))
        if t_s.size:
            gpus.append(Use(f"GPU {gpu.index} {gpu.name}", tuple(t_s), tuple(share)))
    if gpus:
        return "GPU in use, as the driver samples it", tuple(gpus)
    if record.devices is None or not np.isfinite(series.cpu_s).all():
        return "", ()
    of = f"{record.devices.cpus} processors" if record.devices.cpus != 1 else "the processor"
    return f"{of} in use by the process", (_use(of, series, series.cpu_s / record.devices.cpus, window_s),)


def _use(name: str, series: StepSeries, busy_s: FloatArray, window_s: float) -> Use:
    t_s, share = trace(series.end_s, busy_s, window_s=window_s)
    return Use(name, tuple(t_s), tuple(share))


def _table(
    series: StepSeries, parts: Mapping[str, FloatArray], compiled: NDArray[np.int64], uses: Sequence[Use]
) -> Table:
    count = series.wall_s.size
    edges = np.unique(np.linspace(0, count, min(_ROWS, count) + 1).astype(int))
    rows = []
    for low, high in pairwise(edges):
        wall = series.wall_s[low:high]
        begin, end = series.end_s[low] - series.wall_s[low], series.end_s[high - 1]
        shares = [units.percent(float(seconds[low:high].sum() / wall.sum())) for seconds in parts.values()]
        rows.append(
            (
                f"{low + 1:,} to {high:,}" if high - low > 1 else f"{high:,}",
                units.duration(float(begin)),
                units.duration(float(wall.mean())),
                units.duration(float(wall.max())),
                *shares,
                f"{int(((compiled > low) & (compiled <= high)).sum()):,}",
                *(_mean_use(use, float(begin), float(end)) for use in uses),
            )
        )
    heads = ("from", "mean step", "slowest", *(PARTS[name] for name in parts), "compilations")
    return table(("steps", *numeric(*heads, *(use.name for use in uses))), rows)


def _mean_use(use: Use, begin_s: float, end_s: float) -> str:
    inside = [share for t_s, share in zip(use.t_s, use.share, strict=True) if begin_s <= t_s <= end_s]
    return units.percent(float(np.mean(inside))) if inside else NOT_MEASURED


def _short(values: Sequence[float] | FloatArray) -> list[float]:
    """Four significant digits."""
    return [float(f"{value:.4g}") for value in values]


def _rounded(values: Sequence[float] | FloatArray) -> list[float]:
    """To the microsecond."""
    return [round(float(value), 6) for value in values]


_NAMED: Final = {0.0: "fastest", 0.5: "median", 1.0: "slowest"}
_QUANTILES: Final = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
_LAGS: Final = 50
_PERIODS: Final = 12
_STRETCHES: Final = 12


def table_of(name: str, scene: Scene) -> Table | None:
    """The data of a plot of that name; ``None`` where a table beside it has them, or there are none."""
    if name == "distribution":
        return _distribution(scene)
    wall = np.empty(0) if scene.main is None else scene.main.steady_wall_s
    if name in ("autocorrelation", "periodogram"):
        if wall.size <= _PERIODS or not varies(wall):
            return None
        return _autocorrelation(wall) if name == "autocorrelation" else _periodogram(wall)
    for group in groups(scene.report):
        if name == list(figures_of(group))[1] and (runs := side_runs(group, scene)):
            return _traces(runs)
    return None


def _distribution(scene: Scene) -> Table | None:
    rows = []
    for series in scene.series:
        if (wall_s := series.steady_wall_s).size:
            quantiles = (units.duration(float(value)) for value in np.quantile(wall_s, _QUANTILES))
            rows.append((series.label, f"{wall_s.size:,}", *quantiles))
    names = (_NAMED.get(share, f"{100 * share:g} %") for share in _QUANTILES)
    return table(("process", *numeric("steps", *names)), rows) if rows else None


def _autocorrelation(wall_s: FloatArray) -> Table:
    values = autocorrelation(wall_s, min(_LAGS, wall_s.size // 4))
    band = 1.96 / np.sqrt(wall_s.size)
    rows = [(f"{lag}", f"{value:.3f}", "yes" if abs(value) > band else "no") for lag, value in enumerate(values)]
    return table(("lag, steps", *numeric("autocorrelation", "beyond white noise (95 %)")), rows)


def _periodogram(wall_s: FloatArray) -> Table:
    found = periodogram(wall_s)
    rows = []
    for at in np.argsort(-found.power)[:_PERIODS]:
        power, above = found.power[at], "yes" if found.power[at] > found.threshold[at] else "no"
        rows.append((units.number(float(1 / found.frequency[at])), f"{power:.2e}", f"{found.null[at]:.2e}", above))
    columns = numeric("power, s²", "expected of red noise", "above the 1 % line")
    return table(("period, steps", *columns), rows)


def _traces(runs: tuple[SideRun, ...]) -> Table:
    span_s = max(float(run.series.end_s[-1]) for run in runs)
    edges = np.linspace(0.0, span_s, _STRETCHES + 1)
    heads = [f"{run.arm.id}: {what}" for run in runs for what in ("mean step", "utilization")]
    columns = zip(*(_stretches(run, edges) for run in runs), strict=True)
    rows = [
        (f"{low:.1f} to {high:.1f} s", *chain.from_iterable(cells))
        for (low, high), cells in zip(pairwise(edges), columns, strict=True)
    ]
    return table(("since the first step", *numeric(*heads)), rows)


def _stretches(run: SideRun, edges: FloatArray) -> Iterator[tuple[str, str]]:
    end_s, wall_s = run.series.end_s, run.series.wall_s
    t_s, share = utilization(run, float(edges[1] - edges[0]))
    known = bool(run.arm.utilization_of)
    for low, high in pairwise(edges):
        steps = wall_s[(end_s > low) & (end_s <= high)]
        used = share[(t_s > low) & (t_s <= high)]
        mean = units.duration(float(steps.mean())) if steps.size else "no step ended"
        yield mean, units.percent(float(used.mean())) if known and used.size else NOT_MEASURED
