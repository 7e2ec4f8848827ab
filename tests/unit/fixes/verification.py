"""Verifications of fixes whose worth is known, on a machine whose noise is known: round after round until decided.

What is measured next, and when that ends, is told by the properties of ``Verified`` that the real verification asks, in
the same order: first all fixes, then the best of them beside its patch. Only the machine is imagined: a process has a
speed of its own, and each round of it differs from that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from xttsbench.analysis.evidence import LEAST_SCALE, noise_scale, paired, round_scale
from xttsbench.comparison.effects import effect_of
from xttsbench.comparison.sweep import rounds_of_a_process
from xttsbench.fixes.rounds import LEAST_BLOCKS, ORIGINAL, PATCHED
from xttsbench.fixes.verified import Measured, Verified
from xttsbench.planning import AGAIN
from xttsbench.records.base import MARGIN
from xttsbench.records.fix import Semantics

MOST_PROCESSES = 12
"""Of a group, as the real verification has them where its budget is no limit."""
SAME = Semantics(equivalent=True, how="identical", sentence="The same.")


@dataclass
class Verification:
    """One verification.

    Attributes:
        worth: fix -> times as fast as the original.
        noise: standard deviation of a round, as a share; each side has its own.
        spread: of the speeds of processes, likewise.
        burst: share of the rounds in which a neighbour takes a third of one side's speed, which no gate sees.
    """

    worth: Mapping[str, float]
    seed: int
    noise: float = 0.03
    spread: float = LEAST_SCALE / 2**0.5
    burst: float = 0.0
    seen: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """Variant -> process and log ratio of each round."""
    processes: int = 0

    def run(self) -> Verified:
        """What is known in the end."""
        self._draw = np.random.default_rng(self.seed)
        found = self._measure(dict(self.worth))
        good = found.contenders
        if good:
            found = self._measure({good[0]: self.worth[good[0]], PATCHED: self.worth[good[0]]})
        return found

    def _measure(self, worth: Mapping[str, float]) -> Verified:
        """One group: each fix until it is settled, a process after the other."""
        for number in range(MOST_PROCESSES):
            found = self._found()
            left = [name for name in worth if not (number and found.settled(name))]
            if not left:
                break
            self._process(worth, left, rounds_of_a_process(found.round_scale), twice=found.noise_processes < 2)
        return self._found()

    def _process(self, worth: Mapping[str, float], names: list[str], rounds: int, *, twice: bool) -> None:
        """Processes that live side by side, one an arm, and take turns until all fixes are decided."""
        again = ORIGINAL + AGAIN
        arms = [ORIGINAL, *names, *([again] if twice else [])]
        speed = {arm: np.log(worth.get(arm, 1.0)) + self._draw.normal(0, self.spread) for arm in arms}
        left = set(names)
        for _ in range(rounds):
            turn = {arm: speed[arm] + self._draw.normal(0, self.noise) for arm in arms}
            for arm in arms:
                turn[arm] -= 0.4 * (self._draw.random() < self.burst)
            for arm in (*left, *([again] if twice else [])):
                self.seen.setdefault(arm, []).append((self.processes, turn[arm] - turn[ORIGINAL]))
            left -= self._found().decided
            if not left:
                break
        self.processes += 1

    def _found(self) -> Verified:
        samples = {arm: paired([d for _, d in own], [p for p, _ in own]) for arm, own in self.seen.items()}
        again = samples.pop(ORIGINAL + AGAIN, None)
        scale = noise_scale(again, samples.values())
        effects = {
            arm: effect_of(sample, scale, candidates=len(samples), margin=MARGIN) for arm, sample in samples.items()
        }
        return Verified(
            semantics=dict.fromkeys(samples, SAME),
            measured={arm: Measured(effect, None, None) for arm, effect in effects.items()},
            round_scale=round_scale(samples.values()),
            noise_processes=min(again.processes, LEAST_BLOCKS) if again else 0,
        )


def accepted(worth: Mapping[str, float], seeds: range, **machine: float) -> dict[str, float]:
    """Fix -> share of so many verifications that accept it; under ``rounds`` the mean number of its rounds."""
    found = {name: 0 for name in worth}
    rounds = 0
    for seed in seeds:
        verification = Verification(worth, seed, **machine)  # type: ignore[arg-type] - fields by their names
        verified = verification.run()
        for name in worth:
            found[name] += verified.accepted(name)
            rounds += len(verification.seen[name])
    return {name: count / len(seeds) for name, count in found.items()} | {"rounds": rounds / len(seeds) / len(worth)}
