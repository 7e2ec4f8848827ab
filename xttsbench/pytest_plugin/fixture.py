"""The fixture ``xttsbench_benchmark``: measure a target in fresh processes, record it, and judge what a test demands.

What is heavy is imported when a test measures, since this module is loaded in every pytest run.

Steps that were timed in fresh processes, handed to pytest-benchmark as the rounds of its own benchmark.

pytest-benchmark times calls in the test's process and has no door for times from elsewhere. It does let a test choose
its clock (``@pytest.mark.benchmark(timer=...)``) and the number of rounds (``benchmark.pedantic``), both documented. So
a clock that replays the steps is put in that place, and a function that does nothing is "timed" for as many rounds as
there are steps: everything behind it (table, JSON, saving, comparing, grouping) is pytest-benchmark's own, and none of
its private parts is touched. Whether it worked is read back from ``benchmark.stats``, and a version where it did not is
refused and not believed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from xttsbench.errors import UsageError, XttsbenchError

if TYPE_CHECKING:
    from xttsbench.execution.helper import Helper
    from xttsbench.pytest_plugin.gates import Demands, Gate
    from xttsbench.pytest_plugin.measuring import Asked, Measured
    from xttsbench.records.base import Estimate
    from xttsbench.records.report import Report, Severity
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xttsbench.pytest_plugin.gates import Saved


NOTES: Final = pytest.StashKey[list[str]]()
"""One line each, with the test's name in front."""


_BASELINE_OPTION: Final = "--xttsbench-baseline"


Baseline = tuple[str, Mapping[str, Mapping[str, Any]]]
"""A file, and its benchmarks by the full name of their test."""

BASELINE: Final = pytest.StashKey["Baseline | None"]()


def read_baseline(path: Path) -> Baseline:
    """The benchmarks of a file that pytest-benchmark wrote.

    Raises:
        pytest.UsageError: it cannot be read, or is something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return str(path), {bench["fullname"]: bench for bench in found["benchmarks"]}
    except OSError as error:
        raise pytest.UsageError(
            f"{_BASELINE_OPTION} {path} cannot be read ({error.strerror or error}); name a file of --benchmark-json."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise pytest.UsageError(
            f"{_BASELINE_OPTION} {path} is not a file that --benchmark-json or --benchmark-save wrote."
        ) from error


def saved_run(item: pytest.Item) -> Saved | str | None:
    """The saved benchmark of a test; a reason where a run is named that has none; ``None`` where none is named."""
    from xttsbench.pytest_plugin.gates import Saved

    own = item.config.stash.get(BASELINE, None)
    runs = [own] if own is not None else _loaded(item.config)
    if runs is None:
        return None
    if not runs:
        return "--benchmark-compare has found no saved run"
    for source, benchmarks in reversed(runs):  # the newest first
        if item.nodeid in benchmarks:
            return Saved(source, benchmarks[item.nodeid].get("extra_info") or {})
    return f"{' and '.join(source for source, _ in runs)} has no test of this name"


def _loaded(config: pytest.Config) -> list[Baseline] | None:
    """Baselines that pytest-benchmark itself compares with, from the plugin that it registers under its name."""
    if not config.getoption("benchmark_compare", None):
        return None
    mapping = getattr(config.pluginmanager.get_plugin("pytest-benchmark"), "compared_mapping", None)
    return [(str(path), benchmarks) for path, benchmarks in (mapping or {}).items()]


_FEW_STEPS: Final = 3  # steps of a target that is run and not measured (``--benchmark-disable``)


@dataclass(frozen=True)
class Result:
    """Measurement for a test; all of it is ``None`` or empty where benchmarks are disabled.

    Attributes:
        report: the diagnosis where one was asked for, else the report of the measurement.
        throughput_per_s: samples per second.
        step_time_s: mean wall time of a step.
        extra_info: what is recorded in the JSON.
    """

    report: Report | None = None
    throughput_per_s: Estimate | None = None
    step_time_s: Estimate | None = None
    extra_info: Mapping[str, Any] = field(default_factory=dict)


class TargetBenchmark:
    """Callable once in a test; see :meth:`__call__`."""

    def __init__(self, item: pytest.Item, benchmark: Any, temporary: pytest.TempPathFactory) -> None:
        self._item = item
        self._benchmark = benchmark
        self._temporary = temporary
        self._used = False

    def __call__(
        self,
        target: str | Callable[..., Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
        accelerator: str = "real",
        steps: int = 240,
        blocks: int = 3,
        window_s: float = 10.0,
        budget_s: float = 120.0,
        diagnose: bool = False,
        max_regression: float | str | None = None,
        min_throughput: float | None = None,
        max_step_time_s: float | None = None,
        min_utilization: float | None = None,
        fail_on: Severity | None = None,
    ) -> Result:
        """Measure a target, and fail the test where it raises or is proven to break a limit.

        Args:
            target: a function that a fresh process can import (the test's own module is fine), or its
                ``"module:callable"`` or ``"file.py:callable"``; what it returns is described in ``docs/targets.md``.
            kwargs: keyword arguments of the target; values that JSON can hold.
            accelerator: ``"real"``, ``"emulated:MS"``, ``"emulated:FILE"`` or ``"gpu-or-emulated:..."``.
            steps: to measure in a process, at most.
            blocks: fresh processes. Three show a large difference; what a gate takes is in ``docs/gates.md``.
            window_s: seconds to measure in a process, at most.
            budget_s: seconds for everything; no block is begun that would not end.
            diagnose: find out first what limits the step, in a minute or half of the budget.
            max_regression: share by which throughput may be below the saved run's, e.g. ``0.05`` or ``"5%"``.
            min_throughput: samples per second.
            max_step_time_s: of the mean step.
            min_utilization: 0..1, of what ``utilization_of`` in the record says.
            fail_on: fail where a limiting finding of the diagnosis is this severe or worse.
        """
        # Here and not above: every pytest run loads this module.
        from xttsbench.api import importable_name
        from xttsbench.pytest_plugin.gates import Demands, share
        from xttsbench.pytest_plugin.measuring import Asked

        try:
            if self._used:
                raise UsageError(
                    "xttsbench_benchmark measures one target in a test; parametrize the test, or write a second one."
                )
            self._used = True
            if max_regression is None:
                max_regression = self._item.config.getoption("xttsbench_max_regression")
            most = None if max_regression is None else share(max_regression, "xttsbench_benchmark: max_regression")
            demands = Demands(diagnose, most, min_throughput, max_step_time_s, min_utilization, fail_on)
            asked = Asked(
                name=self._item.name,
                command=f"pytest {self._item.nodeid}",
                target=target if isinstance(target, str) else importable_name(target),
                kwargs=kwargs or {},
                accelerator=accelerator,
                steps=steps,
                blocks=blocks,
                window_s=window_s,
                budget_s=budget_s,
                diagnose=diagnose,
            )
            return self._run(asked, demands)
        except XttsbenchError as error:
            give_up(self._benchmark, error)
            pytest.fail(str(error), pytrace=False)

    def _run(self, asked: Asked, demands: Demands) -> Result:
        from xttsbench.pytest_plugin.gates import judged, too_severe
        from xttsbench.pytest_plugin.measuring import extra_info

        if self._benchmark.disabled:
            self._benchmark.pedantic(self._run_a_few_steps, args=(asked,))
            return Result()
        measured = self._measure(asked)
        found = extra_info(asked, measured)
        session_noise = self._item.config.getoption("xttsbench_session_noise")
        gates = judged(demands, found, saved_run(self._item), session_noise)
        found["gates"] = [gate.record() for gate in gates]
        hand_in(self._benchmark, self._item, measured.step_times_s)
        self._benchmark.extra_info.update(found)
        self._fail_or_note(gates, found["warnings"], too_severe(demands, measured.diagnosis))
        arm = measured.report.arms[0]
        return Result(measured.diagnosis or measured.report, arm.throughput_per_s, arm.step_time_s, found)

    def _run_a_few_steps(self, asked: Asked) -> None:
        few = replace(asked, steps=_FEW_STEPS, blocks=1, window_s=min(asked.window_s, 1.0), diagnose=False)
        self._measure(few, shared=True)

    def _measure(self, asked: Asked, *, shared: bool = False) -> Measured:
        from xttsbench.pytest_plugin.measuring import measure

        # What pytest's setting `pythonpath` adds for the tests, the target's own processes need too.
        added = [str(path) for path in self._item.config.getini("pythonpath")]
        with pytest.MonkeyPatch.context() as patch:
            if added:
                patch.setenv("PYTHONPATH", os.pathsep.join(added), prepend=os.pathsep)
            helper = shared_helper(self._item.config) if shared else None
            return measure(asked, self._directory(), helper)

    def _directory(self) -> Path:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", self._item.name).strip("-.")[:60] or "test"
        out: Path | None = self._item.config.getoption("xttsbench_out")
        if out is None:
            return self._temporary.mktemp("xttsbench") / name
        return out / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{name}"

    def _fail_or_note(self, gates: list[Gate], warnings: list[str], severe: list[str]) -> None:
        strict = self._item.config.getoption("xttsbench_strict")
        failed = [gate.sentence for gate in gates if gate.decision == "failed"]
        unsure = [gate.sentence for gate in gates if gate.decision in ("undecided", "not compared")]
        notes = self._item.config.stash[NOTES]
        notes += [f"{self._item.nodeid}: {line}" for line in (*unsure, *warnings)]
        failed += severe
        if strict:
            failed += [f"{sentence} (--xttsbench-strict)" for sentence in unsure]
        if failed:
            pytest.fail("\n".join(failed), pytrace=False)


@pytest.fixture
def xttsbench_benchmark(
    request: pytest.FixtureRequest, benchmark: Any, tmp_path_factory: pytest.TempPathFactory
) -> TargetBenchmark:
    """Measure a training step or an input pipeline in fresh processes: ``xttsbench_benchmark(target, **options)``."""
    return TargetBenchmark(request.node, benchmark, tmp_path_factory)


_HELPER: Final = pytest.StashKey["Helper"]()


def shared_helper(config: pytest.Config) -> Helper:
    """The helper, started at the first call and ended with the run.

    Raises:
        HelperError: TensorFlow cannot be started here.
    """
    if _HELPER not in config.stash:
        from xttsbench.execution.helper import Helper

        helper = Helper()
        helper.__enter__()
        config.add_cleanup(lambda: helper.__exit__(None, None, None))
        helper.wait_ready()
        config.stash[_HELPER] = helper
    return config.stash[_HELPER]


_CLOCK: Final = pytest.StashKey["Replay"]()


class Replay:
    """A clock for pytest-benchmark: it reads each duration once around it, and the real time where there is none."""

    __name__ = "steps_in_fresh_processes"  # what the JSON's options give as the timer

    def __init__(self) -> None:
        self._readings: Iterator[float] = iter(())

    def load(self, durations_s: Sequence[float]) -> None:
        """Replay these: 0 at the start of a round and the duration at its end, so that nothing is rounded."""
        self._readings = chain.from_iterable((0.0, duration) for duration in durations_s)

    def __call__(self) -> float:
        """Return the next reading, in seconds."""
        reading = next(self._readings, None)
        return time.perf_counter() if reading is None else reading


def replay_steps(item: pytest.Item) -> None:
    """Make the replaying clock the one of a test's benchmark; what its own marker says else is kept."""
    own = item.get_closest_marker("benchmark")
    clock = item.stash[_CLOCK] = Replay()
    options = {**(own.kwargs if own is not None else {}), "timer": clock}
    item.add_marker(pytest.mark.benchmark(**options), append=False)


def hand_in(benchmark: Any, item: pytest.Item, durations_s: Sequence[float]) -> None:
    """Make the durations the rounds of a benchmark.

    It is that of a test after :func:`replay_steps`; there is one duration at least.

    Raises:
        XttsbenchError: this version of pytest-benchmark does not take them.
    """
    item.stash[_CLOCK].load(durations_s)
    benchmark.pedantic(_nothing, rounds=len(durations_s), iterations=1)
    taken = getattr(getattr(benchmark.stats, "stats", None), "data", None)
    if list(taken or ()) != list(durations_s):
        benchmark.has_error = True  # keeps rounds that are none out of what is saved
        raise XttsbenchError(
            f"pytest-benchmark {metadata.version('pytest-benchmark')} did not take the steps as its rounds: it keeps "
            f"{len(taken or ())} values, and not these {len(durations_s)}. xttsbench_benchmark needs its 'timer' of "
            "the marker and its 'pedantic' mode to work as in 5.1 to 5.3; install one of these."
        )


def give_up(benchmark: Any, error: XttsbenchError) -> None:
    """Tell pytest-benchmark that there is nothing to record.

    It warns of a fixture that a test asked for and did not use, and a project may have warnings for errors.
    """

    def fails() -> None:
        raise error

    try:
        benchmark(fails)
    except Exception:  # the error that was put in, or that the fixture was used before
        return


def _nothing() -> None:
    """Empty function, timed in this process."""
