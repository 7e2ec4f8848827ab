"""What is run beside each neighbour, and what is true of it: targets with their verdict, and arms with their ratios.

The targets are the project's planted and healthy ones (``tests/targets``), some of the corpus of
``benchmarks/diagnosis``, and those of :mod:`planted`. A verdict that is right without neighbours is right beside them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
BOTTLENECKS, HEALTHY = PROJECT / "tests/targets/bottlenecks.py", PROJECT / "tests/targets/healthy.py"
DIAGNOSIS = PROJECT / "benchmarks/diagnosis"
CORPUS = DIAGNOSIS / "corpus"
PLANTED = HERE / "planted.py"
sys.path.append(str(DIAGNOSIS))


@dataclass(frozen=True)
class Target:
    """One to diagnose.

    Attributes:
        name: of its function.
        file: that has it.
        verdicts: the right ones.
        accelerator_ms: of the emulated accelerator, ``None`` for the real device.
        settings: keyword arguments; ``{folder}`` is a fresh folder.
        beside: neighbour -> the right verdicts beside it, where it changes what is true.
        needs_gpu: left out without one.
    """

    name: str
    file: Path
    verdicts: tuple[str, ...]
    accelerator_ms: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    needs_gpu: bool = False
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def right(self, neighbour: str) -> tuple[str, ...]:
        """The right verdicts beside a neighbour."""
        return self.beside.get(neighbour, self.verdicts)


@dataclass(frozen=True)
class Arms:
    """One comparison: a function of :mod:`planted` and its arms, each a keyword argument's value and its true speed.

    Attributes:
        name: of the case, and of the scenario.
        function: that is measured.
        argument: in which the arms differ.
        arms: each arm's value and how many times as fast it is as the first, the baseline.
        command: ``run`` or ``sweep``.
    """

    name: str
    function: str
    argument: str
    arms: Mapping[str, tuple[float, float]]
    command: Literal["run", "sweep"] = "run"

    def scenario(self) -> str:
        """The YAML for the command."""
        lines = [
            f"name: {self.name}",
            f"description: arms of known speed, {self.function}",
            f"target: {PLANTED}:{self.function}",
            "arms:",
            *(f"  - {{id: {name}, config: {{{self.argument}: {value:g}}}}}" for name, (value, _) in self.arms.items()),
        ]
        return "\n".join(lines) + "\n"


def _targets(file: Path, verdict: str, *names: str, ms: float | None = None) -> tuple[Target, ...]:
    return tuple(Target(name, file, tuple(verdict.split("|")), ms) for name in names)


TARGETS: tuple[Target, ...] = (
    *_targets(BOTTLENECKS, "input", "starved_by_python", "starved_by_ops"),
    *_targets(BOTTLENECKS, "dispatch", "eager_step", "eager_step_that_reads_its_loss"),
    *_targets(BOTTLENECKS, "compile", "retraces", "xla_for_every_length"),
    *_targets(BOTTLENECKS, "host", "checkpoints", "logs_every_step"),
    *_targets(BOTTLENECKS, "contention", "shares_the_cores"),
    *_targets(BOTTLENECKS, "compute", "slow_device", "busy_device"),
    Target("copies_to_the_device", BOTTLENECKS, ("transfer",), needs_gpu=True),
    *_targets(PLANTED, "inconclusive", "few_batches"),
    *_targets(PLANTED, "host", "work_in_the_loop"),
    *_targets(PLANTED, "compute", "lengths_vary"),
    *_targets(CORPUS / "shaping.py", "input", "no_prefetch", ms=10),
    *_targets(CORPUS / "combined.py", "input|contention", "computes_on_all_cores"),
    *_targets(HEALTHY, "compute", "compiled_and_prefetched", "keras_model"),
    *_targets(HEALTHY, "compute", "dataset_only", ms=20),
    *_targets(CORPUS / "healthy.py", "compute", "map_in_turn_behind_a_slow_step"),
    # Launching is 6 % of its step, and 13 % where one processor has to launch and to compute.
    Target("eager_and_long", CORPUS / "healthy.py", ("compute",), beside={"quota": ("compute", "dispatch")}),
    *_targets(CORPUS / "healthy.py", "compute", "lock_that_nobody_misses", ms=20),
)
ARMS: tuple[Arms, ...] = (
    Arms(
        "arms-compute", "computes", "work", {"base": (39, 1), "third": (30, 1.3), "half": (78, 0.5), "eight": (5, 7.8)}
    ),
    Arms(
        "arms-sleep", "sleeps", "ms", {"base": (13, 1), "third": (10, 1.3), "half": (26, 0.5), "tenth": (12, 13 / 12)}
    ),
    Arms(
        "sweep-sleep",
        "sleeps",
        "ms",
        {"base": (13, 1), "same": (13.001, 1), "third": (10, 1.3), "alike": (13.002, 1), "equal": (13.003, 1)},
        "sweep",
    ),
)
