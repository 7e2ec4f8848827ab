"""Whether a sweep's winner can be believed: sweeps with known truths through the project's own rules; prints JSON.

``python benchmarks/sweeps [--quick] [--real N] [--seed N] [--out FILE]``: the processes are made up, with the noise of
the logs given by :class:`machine.Machine` (2 % between processes, 3 % shared by a block; *disturbed*: besides, one
process in a hundred is 5-25 % slower, and no gate sees it; *live*: four rounds in each process, with 2 % between turns
besides), and everything after them is the code of ``xttsbench sweep``, which looks after every round. Questions and
goals:

- among arms that are all equal, how often is one named a winner? At most 2 %.
- one arm of eight is 5 % faster: how often is it chosen and proven? At least 90 %.
- four arms at 5 % noise: how many rounds does each effect take until it is *faster*, in the median?
- pairs of processes differ by 1, 3, 5 and 8 %, and live for 1, 3 and 12 rounds that differ by 5 %: how often does the
  95 % confidence sequence of 1 to 12 pairs hold the truth, and how often is an equal candidate named a winner, ever?
  At least 95 % at each number of pairs, at most 2 % at any. Beside it: Student's interval for one look (``t_1`` to
  ``t_12``), and the median rounds until 2 and 1.2 times are decided among four.
- 200 arms on a surface drawn at random for each sweep, as it is and squeezed to a span of 30 %: how much slower than
  the best arm is the chosen one? At most 2 % in 95 % of the sweeps, for at most 25 % of the exhaustive grid's turns
  (20 of each arm).
- the same seed again: every choice has to be the same.
- with ``--recorded RUN ...``: each is an exhaustive run of a shipped grid (``xttsbench run prefetch --blocks 8``).
  Sweeps of the same grid that draw their processes from it: how often is the choice within 2 % of the run's best arm?
- with ``--real N``: of so many real sweeps of equal arms, in processes of their own, how many name a winner?

Each share has its standard error beside it, and meets its goal by its value. A table goes to standard error. It takes
some minutes on one core, and no quiet machine: nothing is timed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pairs
import real
import recorded
import surface
from machine import DISTURBED, LIVE, PLAIN, Machine, Sweep, decided, planned, swept

from xttsbench.analysis.evidence import LEAST_SCALE, decide
from xttsbench.records.base import FASTER as FASTER_WORDS
from xttsbench.records.plan import Comparison, Procedure

SWEEPS, SURFACES, REPEATED = 1000, 100, 10
QUICK = {"sweeps": 60, "surfaces": 4}
FASTER = 0.05
FALSE_GOAL, POWER_GOAL, REGRET_GOAL, SHARE_GOAL = 0.02, 0.90, 0.02, 0.25
LEAST_COVERED = 0.95
BETWEEN, WITHIN, ROUNDS, SLOWED = (0.01, 0.03, 0.05, 0.08), 0.05, (1, 3, 12), (0.0, 0.01, 0.05)
"""Standard deviations between pairs and between rounds of a pair, rounds of each, and shares of disturbed rounds."""
MEDIANS = {8.0: 1, 2.0: 1, 1.5: 2, 1.2: 4}
"""Effect -> rounds that four arms at 5 % noise should take in the median, one more allowed."""
MACHINES = {"plain": PLAIN, "disturbed": DISTURBED, "live": LIVE}

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


def false_winners(name: str, count: int, seed: int) -> list[Row]:
    """Arms that are all equal."""
    found = []
    for arms in (3, 8, 16):
        sweeps = played(planned([{}] * arms), Procedure(), [100.0] * arms, MACHINES[name], count, seed)
        wrong, error = share([sweep.choice.proven for sweep in sweeps])
        question = f"false winners among {arms} equal arms"
        more = {"rounds": float(np.median([len(sweep.rounds) for sweep in sweeps])), "decided": decided_of(sweeps)}
        found.append(row(question, name, wrong, error, f"<= {FALSE_GOAL:g}", wrong <= FALSE_GOAL, **more))
    return found


def decided_of(sweeps: Sequence[Sweep]) -> float:
    """Share of sweeps whose question was answered."""
    return sum(sweep.choice.decided for sweep in sweeps) / len(sweeps)


def power(name: str, count: int, seed: int) -> list[Row]:
    """One arm of eight is faster."""
    rates = [100.0] * 8
    rates[3] *= 1 + FASTER
    sweeps = played(planned([{}] * 8), Procedure(), rates, MACHINES[name], count, seed)
    right, error = share([sweep.choice.proven and sweep.choice.winner == "arm3" for sweep in sweeps])
    wrong, _ = share([sweep.choice.proven and sweep.choice.winner != "arm3" for sweep in sweeps])
    more = {"another_won": wrong, "rounds": float(np.median([len(sweep.rounds) for sweep in sweeps]))}
    # Without a gate a disturbed machine costs rounds, which is what the gate is for.
    met = right >= POWER_GOAL if name != "disturbed" else None
    return [row(f"one of 8 arms {FASTER:.0%} faster found", name, right, error, f">= {POWER_GOAL:g}", met, **more)]


def rounds_taken(count: int, seed: int) -> list[Row]:
    """Rounds until an effect is decided, among four candidates at 5 % noise, looked at after each."""
    rng, found = np.random.default_rng(seed), []
    for effect, goal in MEDIANS.items():
        taken = []
        for _ in range(count):
            ratios: list[float] = []
            while len(ratios) < 100:
                ratios.append(math.log(effect) + 0.05 * rng.standard_normal())
                s0 = max(LEAST_SCALE, 0.05)
                if decide(ratios, s0, candidates=4, margin=0.02).word in FASTER_WORDS:
                    break
            taken.append(len(ratios))
        middle = float(np.median(taken))
        question = f"rounds that {effect:g}x takes among 4 arms at 5 % noise, median"
        found.append(row(question, "5 %", middle, None, f"<= {goal + 1}", middle <= goal + 1))
    return found


def pairs_that_differ(count: int, seed: int) -> list[Row]:
    """Pairs of processes that differ by what the rules do not assume, one to twelve of them."""
    found = []
    for between, rounds, disturbed in itertools.product(BETWEEN, ROUNDS, SLOWED):
        noise = pairs.Noise(between, WITHIN, rounds, disturbed)
        told = pairs.equal(noise, count, seed)
        shares = {number: share([own for own, _ in hits]) for number, hits in told.covered.items()}
        least, error = min(shares.values())
        single = {f"t_{number}": share([own for _, own in hits])[0] for number, hits in told.covered.items()}
        wrong, _ = share(told.named)
        more = single | {"named": wrong, "clearly": share(told.clearly)[0], "least_single": min(single.values())}
        if not disturbed:
            more |= {f"rounds_to_{by:g}": pairs.decides(noise, by, max(count // 10, 20), seed) for by in (2.0, 1.2)}
        question = f"pairs differ by {between:.0%}: the 95 % sequence covers, least of 1 to 12"
        goal, met = f">= {LEAST_COVERED:g}, named <= {FALSE_GOAL:g}", least >= LEAST_COVERED and wrong <= FALSE_GOAL
        found.append(row(question, f"{rounds} x, {disturbed:.0%}", least, error, goal, met, **more))
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
    exhaustive = len(surface.configs()) * procedure.blocks * MACHINES[name].rounds
    used = float(np.mean([sweep.turns / exhaustive for sweep in sweeps]))
    trials = [sweep.trials for sweep in sweeps]
    named = [own for own, sweep in zip(lost, sweeps, strict=True) if sweep.choice.proven]
    what = "200 arms" if span is None else f"200 arms within {span - 1:.0%}"
    within, error = share([own <= REGRET_GOAL for own in lost])
    goal = f">= 0.95 within {REGRET_GOAL:.0%}"
    more = {"trials": float(np.mean(trials))}
    found = [
        row(f"{what}: the choice is within 2 % of the best", name, within, error, goal, within >= 0.95, **more),
        row(f"{what}: measured turns of the grid's", name, used, None, f"<= {SHARE_GOAL:g}", used <= SHARE_GOAL),
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
    goal, met = "<= 1 of 20", wrong <= 0.05
    return row("real sweeps of 4 equal arms with a winner", "this machine", wrong, error, goal, met), sweeps


def within_recorded(run: Path, count: int, seed: int) -> list[Row]:
    """Sweeps of a grid that was measured exhaustively, beside its best arm."""
    grid, rng = recorded.read_grid(run), np.random.default_rng(seed)
    sweeps = [decided(grid.comparison, Procedure(), lambda asked: grid.drawn(asked, rng)) for _ in range(count)]
    rates = grid.mean_rates
    lost = [1 - rates[sweep.choice.winner] / max(rates.values()) for sweep in sweeps]
    within, error = share([own <= REGRET_GOAL for own in lost])
    question, noise = f"{grid.comparison.name}: the choice is within 2 % of the best", f"{grid.blocks} blocks"
    more = {"mean_regret": float(np.mean(lost)), "most_regret": max(lost)}
    return [row(question, noise, within, error, f">= 0.95 within {REGRET_GOAL:.0%}", within >= 0.95, **more)]


def table(rows: Sequence[Row]) -> str:
    """The figures for people."""
    lines = [f"{'question':64} {'noise':10} {'value':>7} {'s.e.':>7} {'goal':>18} {'met':>4} {'rounds':>6}"]
    for own in rows:
        error = "" if own["standard_error"] is None else f"{own['standard_error']:.2%}"
        value = f"{own['value']:7.1f}" if own["question"].startswith("rounds") else f"{own['value']:7.1%}"
        met = {True: "yes", False: "NO", None: ""}[own["met"]]
        rounds = f"{own['rounds']:.0f}" if "rounds" in own else ""
        if "least_single" in own:
            rounds = f"named {own['named']:.1%}, clearly {own['clearly']:.1%}, t {own['least_single']:.0%}" + "".join(
                f", {name[10:]}x: {own[name]:.0f}" for name in ("rounds_to_2", "rounds_to_1.2") if name in own
            )
        lines.append(
            f"{own['question']:64} {own['noise']:10} {value} {error:>7} {own['goal']:>18} {met:>4} {rounds:>6}"
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
    asked += [
        lambda: rounds_taken(options.sweeps, options.seed),
        lambda: pairs_that_differ(options.sweeps, options.seed),
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
        "met": all(own["met"] is not False for own in rows),
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
