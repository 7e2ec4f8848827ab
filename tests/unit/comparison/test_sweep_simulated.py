"""A few dozen sweeps on the simulated machine of ``benchmarks/sweeps``: false winners, power, regret, output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from xttsbench.records.plan import Procedure

SWEEPS = Path(__file__).resolve().parents[3] / "benchmarks" / "sweeps"
COUNT = 40


@pytest.fixture(scope="module")
def simulated():
    """The benchmark's machine and surface; ``python benchmarks/sweeps`` has its directory on the import path too."""
    sys.path.append(str(SWEEPS))
    try:
        import machine
        import surface
    finally:
        sys.path.remove(str(SWEEPS))
    return machine, surface


def _choices(machine, rates, noise, seed):
    comparison, rng = machine.planned([{}] * len(rates)), np.random.default_rng(seed)
    return [machine.swept(comparison, Procedure(), rates, noise, rng).choice for _ in range(COUNT)]


@pytest.mark.parametrize("arms", [3, 8, 16])
def test_equal_arms_seldom_have_a_winner(simulated, arms) -> None:
    machine, _ = simulated
    proven = sum(choice.proven for choice in _choices(machine, [100.0] * arms, machine.DISTURBED, 1))
    assert proven <= 2  # 0.1 are expected


def test_an_arm_five_percent_faster_is_found(simulated) -> None:
    machine, _ = simulated
    choices = _choices(machine, [100.0] * 3 + [105.0] + [100.0] * 4, machine.PLAIN, 2)
    assert sum(choice.winner == "arm3" and choice.proven for choice in choices) >= 33  # 37 are expected
    assert all(choice.winner in ("arm0", "arm3") for choice in choices)


def test_two_hundred_arms_take_a_quarter_of_the_grid_s_turns_and_lose_little(simulated) -> None:
    machine, surface = simulated
    comparison, procedure = machine.planned(surface.configs()), Procedure(cost=surface.COST)
    for number in range(4):
        rng = np.random.default_rng([3, number])
        rates = surface.rates(rng)
        sweep = machine.swept(comparison, procedure, rates, machine.PLAIN, rng)
        chosen = next(index for index, arm in enumerate(comparison.arms) if arm.id == sweep.choice.winner)
        assert sweep.choice.proven
        assert rates[chosen] >= 0.98 * max(rates)
        assert sweep.turns <= 0.25 * len(rates) * procedure.blocks


@pytest.mark.slow
def test_the_benchmark_prints_each_figure_beside_its_goal(tmp_path) -> None:
    out = tmp_path / "sweeps.json"
    done = subprocess.run(
        [sys.executable, str(SWEEPS), "--sweeps", "2", "--surfaces", "1", "--out", str(out)],
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert json.loads(out.read_text(encoding="utf-8")) == result
    assert result["figures"][-1]["met"] is True  # the same seed, the same choices
    assert all({"question", "value", "standard_error", "goal", "met"} <= own.keys() for own in result["figures"])
    assert len(done.stderr.splitlines()) == 1 + len(result["figures"])
