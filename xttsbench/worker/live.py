"""A target of the calling process, measured there, with fixes and without: no other process could build it.

Each fix is applied once and kept. Building it again for every trial would fill its cache again, and start the processes
of a pool again, which is no part of what is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from xttsbench.records.fix import FixSet
from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded, classify, load_target
from xttsbench.targets.spec import parse_target
from xttsbench.worker.bench import Bench, Step, step_of
from xttsbench.worker.channel import DirectChannel
from xttsbench.worker.filling import fill_caches
from xttsbench.worker.fingerprint import run_elements
from xttsbench.worker.ladder import measure_as_is
from xttsbench.worker.optimized import rewritten
from xttsbench.worker.trial import failure, run_kind

_FILLING: Final = 2
"""Windows of the trial that takes fingerprints which filling a cache may take: it is filled once for all others."""

Take = Callable[[dict[str, Any]], None]


class LiveTarget:
    """What a target would have returned, ready to be measured with fixes and without.

    Args:
        target: a dataset, ``(dataset, step)``, ``(dataset, model)`` or a Workload.
        name: for people.

    Raises:
        TargetError: the target is none of these.
    """

    def __init__(self, target: Any, name: str) -> None:
        self._loaded = classify(target, name)
        self._step = step_of(self._loaded)
        self._fixed: dict[FixSet, Any] = {}

    @property
    def dataset(self) -> Any:
        """The dataset as it was given: this object itself."""
        return self._loaded.dataset

    def with_fix(self, fixes: FixSet, cache_dir: str | None) -> Any:
        """The dataset with some fixes of the dataset; the same object each time.

        Raises:
            InvalidInputError: there is no such fix, or it does not apply.
        """
        if fixes not in self._fixed:
            self._fixed[fixes] = rewritten(self.dataset, fixes, cache_dir)
        return self._fixed[fixes]

    def measure(self, spec: TrialSpec, take: Take, rows: RowMemory) -> None:
        """Run one trial in this process and thread; whatever it raises is told as its end.

        A trial of the rung ``elements`` has no step: another training of the caller's model is not ours to do. One of
        the rung ``arm`` does not look for shapes, since the step has seen them in the main trial.

        Args:
            spec: of the trial.
            take: gets each message that a trial in a process of its own would send.
            rows: gets the rows of its steps.
        """
        channel = DirectChannel(take, rows)
        try:
            loaded, step, rung = self._prepared(spec)
            run_kind(spec, loaded, step, channel, rung)
        except Exception as error:
            channel.send(failure(error))
        channel.send({"done": True})

    def _prepared(self, spec: TrialSpec) -> tuple[Loaded, Step | None, Callable[..., None] | None]:
        loaded = self._loaded
        if spec.rung == "elements":
            # Applied afresh: a cache that these shortened passes fill must not be the one that is timed, or kept.
            if spec.fix is not None:
                apart = str(Path(spec.cache_dir) / spec.trial_id) if spec.cache_dir else None
                loaded = replace(loaded, dataset=rewritten(self.dataset, FixSet.parse(spec.fix), apart))
            return loaded, None, self._run_elements
        if spec.fix is not None:
            loaded = replace(loaded, dataset=self.with_fix(FixSet.parse(spec.fix), spec.cache_dir))
        return loaded, self._step, _run_arm if spec.rung == "arm" else None

    def _run_elements(self, spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
        """Take the fingerprints, then fill the cache of the dataset that is timed, so that no timed trial does it."""
        run_elements(spec, loaded, step, bench, original=self.dataset)
        if spec.fix is not None:
            kept = replace(self._loaded, dataset=self.with_fix(FixSet.parse(spec.fix), spec.cache_dir))
            fill_caches(spec.model_copy(update={"window_s": spec.window_s * _FILLING}), kept, bench)


def _run_arm(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    measure_as_is(spec, loaded, step, bench)


def load_here(target: Any, name: str, kwargs: dict[str, Any]) -> Loaded:
    """A target in the calling process: what is there already, what a callable returns, or what a name stands for.

    Raises:
        TargetError: it cannot be imported or called, or is no target.
    """
    if isinstance(target, str):
        return load_target(parse_target(target), kwargs)
    return classify(target(**kwargs) if callable(target) else target, name)
