"""The processes of the comparison: each contestant's check, its runs, and rounds of them in random order."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from contestants import PEERS, WORKERS, Contestant, process_environment
from manifest import Manifest
from results import TOLERANCE, difference

WARM_UP_S = 1.0
LOOK_S = 0.2  # how long the machine is looked at before each process

PROCESS_LIMIT_S = 300


class FailedError(Exception):
    """A contestant ended with an error, or its batches are not the others'."""


class Arena:
    """Runs contestants on a manifest, and notes how busy the machine was before each."""

    def __init__(self, manifest: Manifest, folder: Path, pythons: dict[str, Path | str], cores: Sequence[int]) -> None:
        self.manifest, self._folder, self._pythons, self._cores = manifest, folder, pythons, cores
        self._file = folder / "manifest.npz"
        manifest.save(self._file)
        self.busy: list[float] = []

    def rate(self, contestant: Contestant, warm_up_s: float, seconds: float) -> dict[str, Any]:
        """Return what one process measured."""
        self.busy.append(self._busy())
        found: dict[str, Any] = json.loads(self._run(contestant, "time", str(warm_up_s), str(seconds)))
        return found

    def _busy(self) -> float:
        """Return the share of our cores that is in use now, when no contestant runs."""
        by_core = psutil.cpu_percent(interval=LOOK_S, percpu=True)
        return statistics.fmean(by_core[core] for core in self._cores) / 100

    def check(self, contestant: Contestant) -> float:
        """Return the largest difference of a contestant's batches from the truth, in log-mel units."""
        with tempfile.TemporaryDirectory(dir=self._folder) as dump:
            self._run(contestant, "check", dump)
            tolerance = TOLERANCE if contestant.computes_features else 0.0
            try:
                return difference(self.manifest, Path(dump), tolerance=tolerance)
            except (OSError, ValueError) as error:
                raise FailedError(f"{contestant.name}: {error}") from error

    def _run(self, contestant: Contestant, *rest: str) -> str:
        command = contestant.command(self._pythons[contestant.environment], self._file, *rest)
        try:
            done = subprocess.run(
                command, env=process_environment(), capture_output=True, text=True, check=False, timeout=PROCESS_LIMIT_S
            )
        except subprocess.TimeoutExpired as error:
            raise FailedError(f"{contestant.name}: did not end within {PROCESS_LIMIT_S} s") from error
        if done.returncode:
            print(done.stderr[-2000:], file=sys.stderr)
            raise FailedError(f"{contestant.name}: exit code {done.returncode}")
        return done.stdout.strip().rpartition("\n")[2]


def warm(manifest: Manifest, data: Path) -> None:
    """Read every file once, so that all of them are in the page cache."""
    for path in [*manifest.files.tolist(), *manifest.packed.tolist(), *(data / "wavs").iterdir()]:
        Path(path).read_bytes()


def tuned(arena: Arena, peer: str, screens: int, seconds: float) -> tuple[list[Contestant], dict[str, float]]:
    """Screen a peer's variants; return the best one of each number of workers and the best hand-made one.

    Without screens, the first of each are taken, and no rates come back.
    """
    groups = {workers: PEERS[peer](workers) for workers in WORKERS}
    everyone = [contestant for group in groups.values() for contestant in group]
    rates: dict[str, list[float]] = {contestant.name: [] for contestant in everyone}
    for screen in range(screens):
        for contestant in random.Random(screen).sample(everyone, len(everyone)):
            rates[contestant.name].append(arena.rate(contestant, WARM_UP_S / 2, seconds)["samples_per_s"])

    def rate(contestant: Contestant) -> float:
        return statistics.median(rates[contestant.name]) if screens else 0.0

    chosen = [max((entry for entry in group if not entry.hand_made), key=rate) for group in groups.values()]
    chosen.append(max((entry for entry in everyone if entry.hand_made), key=rate))
    return chosen, {contestant.name: round(rate(contestant), 1) for contestant in everyone if screens}


def played(
    arena: Arena, contestants: Sequence[Contestant], rounds: int, seconds: float, seed: int
) -> dict[str, list[Any]]:
    """Run the rounds; return what each contestant measured, by round."""
    found: dict[str, list[Any]] = {contestant.name: [] for contestant in contestants}
    rng = random.Random(seed)
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for contestant in rng.sample(contestants, len(contestants)):
            found[contestant.name].append(arena.rate(contestant, WARM_UP_S, seconds))
    return found
