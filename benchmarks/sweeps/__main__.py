"""Whether a sweep's winner can be believed: sweeps with known truths through the project's own rules; prints JSON.

``python benchmarks/sweeps [--quick] [--real N] [--seed N] [--out FILE]``: the processes are made up, with the noise of
the logs given by :class:`machine.Machine` (2 % between processes, 3 % shared by a block; *disturbed*: besides, one
process in a hundred is 5-25 % slower), and everything after them is the code of ``xttsbench sweep``. Questions and
goals:

- among arms that are all equal, how often is one named a winner? At most 5 %.
- one arm of eight is 5 % faster: how often is it chosen and proven? At least 90 %.
- 200 arms on a surface drawn at random for each sweep, as it is and squeezed to a span of 30 %: how much slower than
  the best arm is the chosen one? At most 2 % in 95 % of the sweeps, for at most 25 % of the exhaustive grid's steps.
  A noisy session names no winner and keeps the baseline, which is the slowest arm; how often that is so is beside it.
- the same seed again: every choice has to be the same.
- with ``--recorded RUN ...``: each is an exhaustive run of a shipped grid (``xttsbench run prefetch --blocks 8``).
  Sweeps of the same grid that draw their processes from it: how often is the choice within 2 % of the run's best arm?
- with ``--real N``: of so many real sweeps of equal arms, in processes of their own, how many name a winner?

Each share has its standard error beside it, and meets its goal by its value. A table goes to standard error. It takes
about two minutes on one core, and no quiet machine: nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import real
import recorded
import surface
from machine import DISTURBED, PLAIN, STEPS, Machine, Sweep, decided, planned, swept

from xttsbench.records.plan import Comparison, Procedure

SWEEPS, SURFACES, REPEATED = 1000, 300, 20
QUICK = {"sweeps": 60, "surfaces": 12}
FASTER = 0.05
FALSE_GOAL, POWER_GOAL, REGRET_GOAL, SHARE_GOAL = 0.05, 0.90, 0.02, 0.25
MACHINES = {"plain": PLAIN, "disturbed": DISTURBED}

Row = dict[str, Any]


def share(hits: Sequence[bool]) -> tuple[float, float]:
    """A share and its standard error, by Agresti and Coull, so that none of a hundred is not exactly none."""
    near = (sum(hits) + 2) / (len(hits) + 4)
    return sum(hits) / len(hits), math.sqrt(near * (1 - near) / (len(hits) + 4))


def row(
    question: str, machine: str, value: float, error: float | None, goal: str, met: bool | None, **more: Any
) -> Row:
    """A figure beside its goal."""
    shown = None if error is None else round(error, 4)
    found = {"question": question, "noise": machine, "value": round(value, 4), "standard_error": shown}
    return found | {"goal": goal, "met": met} | {name: round(number, 4) for name, number in more.items()}


def played(
    comparison: Comparison, procedure: Procedure, rates: Sequence[float], machine: Machine, count: int, seed: int
) -> list[Sweep]:
    """So many sweeps over the same truth."""
    rng = np.random.default_rng(seed)
    return [swept(comparison, procedure, rates, machine, rng) for _ in range(count)]


def noisy(sweeps: Sequence[Sweep]) -> float:
    """Share of sweeps that named no winner since the baseline differed from itself."""
    return sum(bool(sweep.choice.noisy) for sweep in sweeps) / len(sweeps)


def false_winners(name: str, count: int, seed: int) -> list[Row]:
    """Arms that are all equal."""
    found = []
    for arms in (3, 8, 16):
        sweeps = played(planned([{}] * arms), Procedure(), [100.0] * arms, MACHINES[name], count, seed)
        wrong, error = share([sweep.choice.proven for sweep in sweeps])
        question = f"false winners among {arms} equal arms"
        found.append(row(question, name, wrong, error, f"<= {FALSE_GOAL:g}", wrong <= FALSE_GOAL, noisy=noisy(sweeps)))
    return found


def power(name: str, count: int, seed: int) -> list[Row]:
    """One arm of eight is faster; for several numbers of blocks in the confirmation."""
    found, rates = [], [100.0] * 8
    rates[3] *= 1 + FASTER
    for blocks in (8, 10, 12, 16):
        procedure = Procedure(confirm_blocks=blocks)
        sweeps = played(planned([{}] * 8), procedure, rates, MACHINES[name], count, seed)
        right, error = share([sweep.choice.proven and sweep.choice.winner == "arm3" for sweep in sweeps])
        wrong, _ = share([sweep.choice.proven and sweep.choice.winner != "arm3" for sweep in sweeps])
        question = f"one of 8 arms {FASTER:.0%} faster found, {blocks} blocks"
        if blocks == Procedure().confirm_blocks:
            question += " (default)"
        more = {"noisy": noisy(sweeps), "another_won": wrong}
        found.append(row(question, name, right, error, f">= {POWER_GOAL:g}", right >= POWER_GOAL, **more))
    return found


def regret(name: str, count: int, seed: int, span: float | None) -> list[Row]:
    """The grid of 200 arms, another surface for each sweep."""
    comparison, procedure = planned(surface.configs()), Procedure(cost=surface.COST)
    sweeps, lost = [], []
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        rates = surface.rates(rng, span)
        sweeps.append(swept(comparison, procedure, rates, MACHINES[name], rng))
        chosen = next(index for index, arm in enumerate(comparison.arms) if arm.id == sweeps[-1].choice.winner)
        lost.append(1 - rates[chosen] / max(rates))
    exhaustive = len(surface.configs()) * procedure.confirm_blocks * STEPS
    used = float(np.mean([sweep.steps / exhaustive for sweep in sweeps]))
    trials = [sum(len(own.rates) * len(own.round.blocks) for own in sweep.results) for sweep in sweeps]
    named = [own for own, sweep in zip(lost, sweeps, strict=True) if sweep.choice.proven]
    what = "200 arms" if span is None else f"200 arms within {span - 1:.0%}"
    within, error = share([own <= REGRET_GOAL for own in lost])
    goal = f">= 0.95 within {REGRET_GOAL:.0%}"
    more = {"noisy": noisy(sweeps), "trials": float(np.mean(trials))}
    found = [
        row(f"{what}: the choice is within 2 % of the best", name, within, error, goal, within >= 0.95, **more),
        row(f"{what}: measured steps of the grid's", name, used, None, f"<= {SHARE_GOAL:g}", used <= SHARE_GOAL),
    ]
    if named:
        inside, error = share([own <= REGRET_GOAL for own in named])
        mean = float(np.mean(named))
        question = f"{what}: ... where a winner is named"
        found.insert(1, row(question, name, inside, error, goal, inside >= 0.95, mean_regret=mean))
    return found


def repeated(seed: int) -> Row:
    """The same seed twice, on both kinds of sweeps."""

    def once() -> str:
        few = played(planned([{}] * 8), Procedure(), [100.0] * 7 + [104.0], DISTURBED, REPEATED, seed)
        rng = np.random.default_rng(seed)
        many = swept(planned(surface.configs()), Procedure(cost=surface.COST), surface.rates(rng), DISTURBED, rng)
        return repr([sweep.choice for sweep in (*few, many)])

    same = once() == once()
    return row("the same seed gives the same choices", "disturbed", float(same), None, "= 1", same)


def really(count: int, seed: int) -> tuple[Row, list[dict[str, Any]]]:
    """Real sweeps of equal arms. Five in a hundred may be wrong, so one of twenty is no failure."""
    sweeps = real.sweeps(count, seed)
    wrong, error = share([own["proven"] for own in sweeps])
    goal, met = f"<= {FALSE_GOAL:g}", wrong <= FALSE_GOAL
    unquiet = sum(bool(own["noisy"]) for own in sweeps) / count
    return row(
        "real sweeps of 4 equal arms with a winner", "this machine", wrong, error, goal, met, noisy=unquiet
    ), sweeps


def within_recorded(run: Path, count: int, seed: int) -> list[Row]:
    """Sweeps of a grid that was measured exhaustively, beside its best arm."""
    grid, rng = recorded.read_grid(run), np.random.default_rng(seed)
    sweeps = [decided(grid.comparison, Procedure(), lambda asked: grid.drawn(asked, rng)) for _ in range(count)]
    rates = grid.mean_rates
    lost = [1 - rates[sweep.choice.winner] / max(rates.values()) for sweep in sweeps]
    within, error = share([own <= REGRET_GOAL for own in lost])
    question, noise = f"{grid.comparison.name}: the choice is within 2 % of the best", f"{grid.blocks} blocks"
    more = {"noisy": noisy(sweeps), "mean_regret": float(np.mean(lost)), "most_regret": max(lost)}
    return [row(question, noise, within, error, f">= 0.95 within {REGRET_GOAL:.0%}", within >= 0.95, **more)]


def table(rows: Sequence[Row]) -> str:
    """The figures for people."""
    lines = [f"{'question':58} {'noise':10} {'value':>7} {'s.e.':>7} {'goal':>18} {'met':>4} {'noisy':>6}"]
    for own in rows:
        error = "" if own["standard_error"] is None else f"{own['standard_error']:.2%}"
        unquiet = f"{own['noisy']:.1%}" if "noisy" in own else ""
        met = "yes" if own["met"] else "NO"
        lines.append(
            f"{own['question']:58} {own['noise']:10} {own['value']:7.1%} {error:>7} {own['goal']:>18} {met:>4} "
            f"{unquiet:>6}"
        )
    return "\n".join(lines)


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(
        prog="sweeps", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweeps", type=int, default=SWEEPS, help=f"simulated for each share ({SWEEPS})")
    parser.add_argument("--surfaces", type=int, default=SURFACES, help=f"of 200 arms ({SURFACES})")
    parser.add_argument("--real", type=int, default=0, help="real sweeps of equal arms, some 40 s each (0)")
    parser.add_argument("--recorded", type=Path, nargs="+", default=[], metavar="RUN", help="exhaustive runs of grids")
    parser.add_argument("--seed", type=int, default=0, help="of everything (0)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: too few sweeps to judge by")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    options = parser.parse_args()
    if options.quick:
        vars(options).update(QUICK)
    if min(options.sweeps, options.surfaces) < 1:
        parser.error("--sweeps and --surfaces are 1 at least")
    asked: list[Callable[[], list[Row]]] = []
    for name in MACHINES:
        asked += [
            lambda name=name: false_winners(name, options.sweeps, options.seed),
            lambda name=name: power(name, options.sweeps, options.seed),
            lambda name=name: regret(name, options.surfaces, options.seed, None),
            lambda name=name: regret(name, options.surfaces, options.seed, 1.3),
        ]
    rows = [own for ask in asked for own in ask()] + [repeated(options.seed)]
    for run in options.recorded:
        rows += within_recorded(run, options.sweeps, options.seed)
    told: list[dict[str, Any]] = []
    if options.real:
        figure, told = really(options.real, options.seed)
        rows.append(figure)
    print(table(rows), file=sys.stderr)
    result = {
        "met": all(own["met"] for own in rows),
        "provisional": bool(options.quick),
        "figures": rows,
        "real_sweeps": told,
        "settings": {
            "sweeps": options.sweeps,
            "surfaces": options.surfaces,
            "seed": options.seed,
            "procedure": Procedure().model_dump(mode="json"),
            "noise": {name: vars(own) for name, own in MACHINES.items()},
        },
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.out:
        options.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
