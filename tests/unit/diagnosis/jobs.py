"""Ranks of a job made by hand: collectives whose lateness is known, samples, positions."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from xttsbench.records.ranks import CodeLine, RankEpoch, RankParts, RankPosition, RankRun, RankTask

COMMON_S = 0.001
_STEP_S = 0.02


def rank_run(
    rank: int,
    *,
    ranks: int = 2,
    steps: int = 100,
    hashes: Iterable[int] = (),
    then: Iterable[int] = (),
    samples: int | None = None,
    below: int = 1 << 52,
    repeats: int = 0,
    position: RankPosition | None = None,
    begun: int = 0,
    ended: bool = False,
    lines: Mapping[str, CodeLine] | None = None,
    **parts: float,
) -> RankRun:
    epochs = []
    for number, held in enumerate((tuple(hashes), tuple(then))):
        if held:
            seen = len(held) + repeats
            epochs.append(
                RankEpoch(
                    epoch=number,
                    batches=10,
                    samples=samples or seen,
                    looked=seen,
                    ended=ended,
                    below=below,
                    hashes=held,
                    repeats=repeats,
                )
            )
    return RankRun(
        task=RankTask(rank=rank, ranks=ranks, source="TF_CONFIG"),
        host="one",
        clock="boot",
        updated_s=1e9,
        steps=steps,
        wall_s=steps * _STEP_S,
        parts=RankParts(**parts),
        begun=begun,
        ended=begun,
        measured=steps,
        epochs=tuple(epochs),
        position=position,
        lines=dict(lines or {}),
    )


def job(
    *,
    ranks: int = 2,
    steps: int = 400,
    late_s: Mapping[int, float] | None = None,
    every: int = 1,
    jitter_s: float = 1e-4,
    stall_s: float = 0.0,
    clocks_s: Sequence[float] = (),
    **parts: float,
) -> list[RankRun]:
    """One collective a step: ranks come within the jitter of each other but for those that are late.

    Those are late in every so many steps, and rank 0 stalls once. The collective takes :data:`COMMON_S` from the last
    arrival on.
    """
    rng, found = np.random.default_rng(1), []
    arrivals = 1.0 + np.arange(steps)[:, None] * _STEP_S + rng.uniform(0, jitter_s, (steps, ranks))
    for rank, seconds in (late_s or {}).items():
        arrivals[::every, rank] += seconds
    arrivals[steps // 8, 0] += stall_s
    ends = arrivals.max(axis=1) + COMMON_S + rng.exponential(2e-5, steps)
    for rank in range(ranks):
        offset = clocks_s[rank] if clocks_s else 0.0
        stamps = np.rint((np.stack([arrivals[:, rank], ends], axis=1) + offset + 1e4) * 1e9).astype(int).tolist()
        made = rank_run(rank, ranks=ranks, steps=steps, **parts)
        clock = f"boot {rank}" if clocks_s else "boot"
        collectives = tuple((number, begin, end) for number, (begin, end) in enumerate(stamps))
        found.append(
            made.model_copy(
                update={"collectives": collectives, "clock": clock, "since_ns": round((offset + 1e4 + 0.9) * 1e9)}
            )
        )
    return found
