"""The pytest plugin: its options, its terminal summary, and the fixture ``xttsbench_benchmark`` on pytest-benchmark.

It is loaded in every pytest run of an environment that has this package, so that nothing slow is imported here, and a
run without pytest-benchmark goes on as if the plugin were not there, until a test asks for the fixture.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import pytest

from xttsbench.pytest_plugin import fixture
from xttsbench.pytest_plugin.fixture import BASELINE, NOTES, read_baseline, replay_steps

_PYTEST_BENCHMARK: Final = ("benchmark", "pytest_benchmark.plugin")
"""Names that pytest-benchmark goes by: as an entry point, and named with ``-p``."""


class WithoutBenchmark:
    """The fixture where pytest-benchmark is not installed or switched off: it says so in the test that asks for it."""

    @pytest.fixture
    def xttsbench_benchmark(self) -> None:
        """Fail with what to do."""
        pytest.fail(
            "xttsbench_benchmark is built on pytest-benchmark, which is not installed here or switched off "
            "(-p no:benchmark); install it with 'pip install pytest-benchmark', or leave the test out.",
            pytrace=False,
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what is asked of a whole run; the rest is said in the test."""
    group = parser.getgroup("xttsbench", "xttsbench: training steps and input pipelines, measured in fresh processes")
    group.addoption(
        "--xttsbench-max-regression",
        metavar="SHARE",
        type=_share,
        help="Fail a test whose throughput is proven to be lower than the saved run's by more than this, e.g. 5%% "
        "(the run that --benchmark-compare or --xttsbench-baseline names).",
    )
    group.addoption(
        "--xttsbench-baseline",
        metavar="FILE",
        type=Path,
        help="A file that --benchmark-json or --benchmark-save wrote, to compare with.",
    )
    group.addoption(
        "--xttsbench-session-noise",
        metavar="SHARE",
        type=_noise,
        default=0.02,
        help="What two sessions on this machine differ by (standard deviation); it widens the interval against a saved "
        "run. Default: 2%%, which suits a shared machine.",
    )
    group.addoption(
        "--xttsbench-strict",
        action="store_true",
        help="Fail where a gate cannot be decided, too: an interval on both sides of the limit, another machine.",
    )
    group.addoption(
        "--xttsbench-out",
        metavar="DIR",
        type=Path,
        help="Keep the directories of the runs under this one (default: pytest's temporary directory).",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Offer the fixture: the real one where pytest-benchmark is there, else one that says that it is not."""
    config.stash[NOTES] = []
    path = config.getoption("xttsbench_baseline")
    config.stash[BASELINE] = read_baseline(path) if path is not None else None
    present = any(config.pluginmanager.has_plugin(name) for name in _PYTEST_BENCHMARK)
    config.pluginmanager.register(fixture if present else WithoutBenchmark(), "xttsbench-fixture")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give pytest-benchmark the clock that replays the steps, before it makes its own fixture."""
    offered = item.config.pluginmanager.get_plugin("xttsbench-fixture")
    if offered is fixture and "xttsbench_benchmark" in getattr(item, "fixturenames", ()):
        replay_steps(item)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show what no gate could decide, and what the runs warn of."""
    notes = config.stash.get(NOTES, [])
    if notes:
        terminalreporter.section("xttsbench", sep="-", yellow=True)
        for note in notes:
            terminalreporter.write_line(note, yellow=True)


def _share(text: str) -> float:
    from xttsbench.errors import UsageError
    from xttsbench.pytest_plugin.gates import share

    try:
        return share(text, "the option")
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _noise(text: str) -> float:
    return 0.0 if text.strip() in ("0", "0%") else _share(text)
