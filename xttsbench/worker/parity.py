"""Parity: whether other configurations are the baseline's training, so that their speeds compare at all.

All are loaded in this process, one after the other, each under the seed of the trial: first their batches are compared,
then the losses of their first steps, on one batch that is the same for all. What differs from one pass of the baseline
to its next cannot tell a configuration that changes it from one that does not: its data are read twice to begin with,
and its losses are computed again, with a step that is built anew, as soon as an arm's differ.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.records.trial import Parity, TrialSpec
from xttsbench.samedata.tolerance import TOLERANCE, difference, loss_difference
from xttsbench.targets.load import Loaded, load_target
from xttsbench.targets.spec import parse_target
from xttsbench.worker.batches import LiveBatches, opened, size_bytes, take_batches
from xttsbench.worker.bench import Bench, Step, step_of
from xttsbench.worker.failure import said
from xttsbench.worker.fingerprint import losses_of


def run_parity(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Compare the first ``spec.steps`` batches of every one of ``spec.others`` with the baseline's, and the losses.

    What is known is sent after each configuration, so that a configuration that takes the process with it costs only
    itself.

    Raises:
        ExhaustedError: the baseline yields nothing.
    """
    baseline = spec.arm or "the baseline"
    bench.channel.phase(f"reading {baseline}")
    with opened(LiveBatches(loaded.dataset), bench.channel) as source:
        ours, ended = take_batches(source, spec.steps, math.inf), source.epoch > 0

    def load(kwargs: Mapping[str, Any]) -> Loaded:
        tf.keras.utils.set_random_seed(spec.seed)
        return load_target(parse_target(spec.target), kwargs)

    def data_against(other: Loaded, arm: str) -> str | None:
        return _difference(ours, ended, other.dataset, lambda: bench.channel.phase(f"reading {arm}"))

    why_not = None
    if set(spec.others) - set(spec.same_data):
        try:
            why_not = data_against(load(spec.kwargs), baseline)
        except TargetError as error:  # it may set what TensorFlow takes once in a process
            why_not = f"a second call in the same process fails: {error}"
    found = Parity(batches=len(ours), tolerance=TOLERANCE, reproducible=why_not is None, why_not=why_not)
    bench.channel.part("parity", found)
    if why_not is not None:
        return
    losses = _Losses(spec, step, min(ours, key=size_bytes), load, lambda arm: bench.channel.phase(f"training {arm}"))
    told: dict[str, Any] = {"same": (), "differences": {}, "failed": {}}
    for arm, kwargs in spec.others.items():
        bench.channel.phase(f"reading {arm}")
        try:
            other = load(kwargs)
            where = None if arm in spec.same_data else data_against(other, arm)
            if where is None and spec.loss_steps:
                where = losses.against(arm, other)
        except Exception as error:  # whatever a pipeline or a step raises is that configuration's own end
            told["failed"][arm] = str(error) if isinstance(error, TargetError) else said(error)
        else:
            if where is None:
                told["same"] += (arm,)
            else:
                told["differences"][arm] = where
        bench.channel.part("parity", found.model_copy(update=told | losses.found))


@dataclass
class _Losses:
    """The baseline's losses of a few steps on one batch, computed for the first comparison; and the others' beside."""

    spec: TrialSpec
    step: Step | None
    batch: Any
    load: Callable[[Mapping[str, Any]], Loaded]
    alive: Callable[[str], None]
    apart: dict[str, float] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    other: tuple[str, ...] = ()

    @property
    def found(self) -> dict[str, Any]:
        """Fields of :class:`Parity` about the losses so far."""
        return {"losses": self.apart, "losses_unknown": self.unknown, "other_losses": self.other}

    def against(self, arm: str, other: Loaded) -> str | None:
        """Place of the difference in the losses of a configuration with the baseline's data."""
        step = step_of(other)
        if self.step is None or step is None:
            return None
        ours, why_not = self._ours
        if ours is None:
            self.unknown[arm] = why_not
            return None
        theirs = self._of(step, arm)
        if theirs is None:
            self.unknown[arm] = "its step returns no number that could be its loss"
            return None
        apart, where = loss_difference(ours, theirs, self.spec.loss_tolerance)
        if where is not None and self._why_not_reproducible is not None:
            self.unknown[arm] = self._why_not_reproducible
            return None
        self.apart[arm] = apart
        if where is not None:
            self.other = (*self.other, arm)
        return where

    @cached_property
    def _ours(self) -> tuple[list[float] | None, str]:
        try:
            losses = None if self.step is None else self._of(self.step, self.spec.arm or "the baseline")
        except Exception as error:
            return None, f"the baseline's step raises {said(error)}"
        return losses, "the baseline's step returns no number that could be its loss"

    @cached_property
    def _why_not_reproducible(self) -> str | None:
        """Difference of the baseline's losses from those of a step built anew with the same arguments, or ``None``."""
        ours, why_not = self._ours
        try:
            step = step_of(self.load(self.spec.kwargs))
            again = None if step is None else self._of(step, self.spec.arm or "the baseline")
        except Exception as error:
            return f"the baseline cannot be built again in the same process: {said(error)}"
        if ours is None or again is None:
            return why_not
        _, where = loss_difference(ours, again, self.spec.loss_tolerance)
        return None if where is None else f"the baseline's own losses differ from one run to the next ({where})"

    def _of(self, step: Step, arm: str) -> list[float] | None:
        logger = tf.get_logger()
        level = logger.level
        logger.setLevel(logging.ERROR)  # each configuration has a function of its own, and TensorFlow warns of so many
        try:
            return losses_of(step, [self.batch] * self.spec.loss_steps, self.spec.seed, lambda: self.alive(arm))
        finally:
            logger.setLevel(level)


def _difference(ours: list[Any], ended: bool, other: tf.data.Dataset, alive: Callable[[], None]) -> str | None:
    iterator = iter(other)
    for number, batch in enumerate(ours):
        theirs = next(iterator, None)
        alive()
        if theirs is None:
            return f"batch {number}: the data end here, and the baseline's go on"
        found = difference(batch, theirs, tolerance=TOLERANCE, batch=number)
        if found is not None:
            return found
    if ended and next(iterator, None) is not None:
        return f"batch {len(ours)}: the data go on, and the baseline's end here"
    return None
