"""Simulated pipelines by the hundred: no harmless change is rejected, and no fault is accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.samedata.elements import (
    Run,
    Sample,
    batched,
    changed,
    cut,
    fingerprints,
    noised,
    plain,
    samples,
    shuffled,
)
from xttsbench.records.fix import Semantics
from xttsbench.records.pipeline import Elements
from xttsbench.samedata.judge import judge


@dataclass(frozen=True)
class Imaginary:
    """A pipeline: in order or shuffled, with noise or without, of so many samples in batches of so many."""

    count: int
    batch: int
    epochs: int = 3
    shuffles: bool = False
    noise: float = 0.0
    ordered: bool = True
    reproducible: bool = True
    """Whether a seed gives the same noise again."""

    def rows(self) -> list[Sample]:
        return samples(self.count, seed=self.count)

    def run(
        self, seed: int, rows: list[Sample] | None = None, *, keep_order: bool = False, keep_noise: bool = False
    ) -> Run:
        """What it yields, with other samples where some are given, and with draws kept from the first epoch."""
        rows = self.rows() if rows is None else rows
        how = {"epochs": self.epochs, "batch": self.batch}
        run = shuffled(rows, seed=seed, anew=not keep_order, **how) if self.shuffles else plain(rows, **how)
        return noised(run, seed=seed, size=self.noise, anew=not keep_noise) if self.noise else run

    def fields(self) -> dict[str, Any]:
        ops = ("ShuffleDatasetV3",) * self.shuffles + ("RandomStandardNormal",) * bool(self.noise)
        return {"ordered": self.ordered, "random_ops": ops}

    def judged(self, run: Run, *, ended: bool = True, **fields: Any) -> Semantics:
        return judge(originals_of(self), fingerprints(run, ended=ended, **{**self.fields(), **fields}))


@cache
def originals_of(kind: Imaginary) -> list[Elements]:
    """Two runs with one seed, one with another."""
    seeds = (1, 1 if kind.reproducible else 101, 2)
    return [fingerprints(kind.run(seed), seed=min(seed, 2), **kind.fields()) for seed in seeds]


def _rounded(rng: np.random.Generator) -> Callable[[Sample], Sample]:
    return lambda row: ((row[0] * (1 + 1e-7 * rng.standard_normal(row[0].shape))).astype(np.float32), *row[1:])


def _dropped(rows: list[Sample], rng: np.random.Generator) -> list[Sample]:
    lost = int(rng.integers(len(rows)))
    return [*rows[:lost], *rows[lost + 1 :]]


def _doubled(rows: list[Sample], rng: np.random.Generator) -> list[Sample]:
    """One sample takes another's place."""
    lost, kept = (int(number) for number in rng.choice(len(rows), 2, replace=False))
    return [*rows[:lost], rows[kept], *rows[lost + 1 :]]


def _swapped(rows: list[Sample], rng: np.random.Generator) -> list[Sample]:
    one, two = (int(number) for number in rng.choice(len(rows), 2, replace=False))
    moved = list(rows)
    moved[one], moved[two] = moved[two], moved[one]
    return moved


def _mislabelled(rows: list[Sample], rng: np.random.Generator) -> list[Sample]:
    place = int(rng.integers(len(rows)))
    return [*rows[:place], (rows[place][0], rows[place][1] + 1, rows[place][2]), *rows[place + 1 :]]


def _one_value(rows: list[Sample], rng: np.random.Generator) -> list[Sample]:
    place = int(rng.integers(len(rows)))
    value = rows[place][0].copy()
    value[int(rng.integers(value.size))] += np.float32(0.01)
    return [*rows[:place], (value, *rows[place][1:]), *rows[place + 1 :]]


def _counted(rows: list[Sample], rng: np.random.Generator) -> list[Sample]:
    """A function that counts its calls gives two neighbours each other's number."""
    place = int(rng.integers(len(rows) - 1))
    names = [row[2] for row in rows]
    names[place], names[place + 1] = names[place + 1], names[place]
    return [(*row[:2], name) for row, name in zip(rows, names, strict=True)]


ROW_FAULTS = (_dropped, _doubled, _mislabelled, _counted)
EXACT_FAULTS = (*ROW_FAULTS, _one_value)


def pipelines(rng: np.random.Generator) -> list[Imaginary]:
    """One of each kind."""
    size = {"count": int(rng.integers(40, 90)), "batch": int(rng.integers(1, 9))}
    return [
        Imaginary(**size),
        Imaginary(**size, shuffles=True),
        Imaginary(**size, ordered=False),
        Imaginary(**size, noise=0.5),
        Imaginary(**size, noise=0.5, reproducible=False),
        Imaginary(**size, noise=0.5, shuffles=True, reproducible=False),
    ]


def harmless(kind: Imaginary, rng: np.random.Generator) -> list[Run]:
    """Runs that a good fix may yield."""
    again, seed = kind.run(1), int(rng.integers(10, 1 << 30))
    found = [again, kind.run(seed), cut(again, int(rng.integers(1, 6)))]
    if not kind.noise:
        found += [changed(again, _rounded(rng)), changed(kind.run(seed), _rounded(rng))]
    if not kind.ordered:
        found.append(shuffled(kind.rows(), seed=seed, epochs=kind.epochs, batch=kind.batch))
    return found


def faulty(kind: Imaginary, rng: np.random.Generator) -> list[Run]:
    """Runs that a bad fix yields, with the same seed or with another."""
    found = []
    for seed in (1, int(rng.integers(10, 1 << 30))):
        faults = ROW_FAULTS if kind.noise else EXACT_FAULTS
        found += [kind.run(seed, fault(kind.rows(), rng)) for fault in faults]
        found.append(changed(kind.run(seed), lambda row: (row[0] * np.float32(3.0), *row[1:])))
        if kind.ordered and not kind.shuffles:
            found.append(kind.run(seed, _swapped(kind.rows(), rng)))
        if kind.shuffles:
            found.append(kind.run(seed, keep_order=True))
        if kind.noise:
            found.append(kind.run(seed, keep_noise=True))
    other = Imaginary(kind.count, kind.batch + 1, kind.epochs, kind.shuffles, kind.noise, kind.ordered)
    return [*found, other.run(1), kind.run(1)[:1] + [epoch[:-1] for epoch in kind.run(1)[1:]]]


DRAWS = pytest.mark.parametrize("draw", [0, *(pytest.param(draw, marks=pytest.mark.slow) for draw in (1, 2, 3))])


@DRAWS
def test_hundreds_of_harmless_changes_and_none_is_rejected(draw: int) -> None:
    rng = np.random.default_rng(draw)
    seen = accepted = 0
    for kind in pipelines(rng):
        for run in harmless(kind, rng):
            short = len(run) == 1
            found = kind.judged(run, ended=not short)
            assert found.equivalent is not False, (kind, found)
            seen += 1
            accepted += found.equivalent is True
            # What was seen whole leaves no doubt, but for random values of which a few rows were seen.
            assert found.equivalent is True or short, (kind, found)
    assert seen >= 25
    assert accepted >= 0.8 * seen


@DRAWS
def test_hundreds_of_faults_and_none_is_accepted(draw: int) -> None:
    rng = np.random.default_rng(1000 + draw)
    seen = rejected = 0
    for kind in pipelines(rng):
        for run in faulty(kind, rng):
            found = kind.judged(run)
            assert found.equivalent is not True, (kind, found)
            seen += 1
            rejected += found.equivalent is False
    assert seen >= 60
    assert rejected >= 0.95 * seen


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 30), st.integers(1, 8), st.integers(1, 3), st.integers(0, 1 << 20))
def test_any_change_of_a_deterministic_pipeline_is_seen(count: int, batch: int, epochs: int, seed: int) -> None:
    kind, rng = Imaginary(count, batch, epochs), np.random.default_rng(seed)
    assert kind.judged(kind.run(1)).how == "identical"
    for fault in (*EXACT_FAULTS, _swapped):
        found = kind.judged(kind.run(1, fault(kind.rows(), rng)))
        assert found.equivalent is False, (fault, found)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 6), st.integers(0, 40))
def test_a_cut_run_is_compared_up_to_the_cut(count: int, batch: int, elements: int) -> None:
    kind = Imaginary(count, batch)
    run = cut(kind.run(1), elements)
    found = kind.judged(run, ended=False)
    assert found.elements == len(run[0])
    assert found.equivalent is (True if run[0] else None)


@settings(max_examples=20, deadline=None)
@given(st.integers(16, 40), st.integers(1, 6), st.integers(0, 1 << 20))
def test_shuffled_samples_are_the_same_ones_or_not(count: int, batch: int, seed: int) -> None:
    kind, rng = Imaginary(count, batch, shuffles=True), np.random.default_rng(seed)
    assert kind.judged(kind.run(seed + 3)).equivalent is True
    for fault in EXACT_FAULTS:
        assert kind.judged(kind.run(seed + 3, fault(kind.rows(), rng))).equivalent is False
    assert kind.judged(kind.run(seed + 3, keep_order=True)).equivalent is False


def test_random_values_are_seldom_taken_for_others() -> None:
    """A false alarm in ten thousand is allowed: in 50 comparisons there is none."""
    kind = Imaginary(100, 5, epochs=2, noise=0.5, reproducible=False)
    originals = originals_of(kind)
    for seed in range(200, 250):
        found = judge(originals, fingerprints(kind.run(seed), **kind.fields()))
        assert found.how == "distribution", found


def test_endless_batches_across_rounds_are_compared_by_rounds() -> None:
    def endless(seed: int) -> Run:
        rows = [
            row for epoch in shuffled(samples(50), seed=seed, epochs=5, batch=1) for batch in epoch for row in batch
        ]
        return [batched(rows, 8)]

    originals = [fingerprints(endless(seed), ended=False, random_ops=("ShuffleDatasetV3",)) for seed in (1, 1, 2)]
    assert judge(originals, fingerprints(endless(9), ended=False)).equivalent is True


def test_endless_draws_are_compared_by_rounds_too() -> None:
    """``cache().map(augment).repeat()`` against an augmentation that the cache swallowed."""

    def endless(seed: int, *, anew: bool = True, shuffles: bool = False) -> Run:
        rows = samples(50)
        order = shuffled(rows, seed=seed, epochs=5, batch=1) if shuffles else plain(rows, epochs=5, batch=1)
        run = noised(order, seed=seed, anew=anew)
        return [batched([row for epoch in run for batch in epoch for row in batch], 8)]

    for shuffles in (False, True):
        originals = [fingerprints(endless(seed, shuffles=shuffles), ended=False) for seed in (1, 1, 2)]
        good = fingerprints(endless(9, shuffles=shuffles), ended=False, fix="cache@Map")
        assert judge(originals, good).how == "distribution"
        frozen = fingerprints(endless(9, anew=False, shuffles=shuffles), ended=False, fix="cache@Map")
        assert judge(originals, frozen).equivalent is False
