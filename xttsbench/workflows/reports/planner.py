"""Predictions of a plan: from a diagnosis and the measured costs of the service to what each layout would give."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from xttsbench.analysis.pooling import Pooled, interval_of
from xttsbench.diagnosis import Diagnosis
from xttsbench.evidence import Evidence, known_cpus
from xttsbench.evidence.pipeline import consumer
from xttsbench.fixes.calls import reset_autotune
from xttsbench.fixes.model import modelled
from xttsbench.records.base import Estimate
from xttsbench.records.pipeline import Pipeline
from xttsbench.records.scale import (
    USUAL_GBIT_S,
    MachineType,
    Scale,
    ScaleCell,
    ScaleChoice,
    ScaleConditions,
    ScaleKnee,
    ScaleMeasured,
    ScaleProof,
    ScaleRequest,
    ServiceCost,
)
from xttsbench.records.trial import TrialRecord
from xttsbench.throughput.calibration import calibrated
from xttsbench.throughput.layout import Found, Layout, Needs, found
from xttsbench.throughput.pace import Consumer, FloatArray, Machine, Pace, pace
from xttsbench.throughput.threads import elements_per_batch, inputs_of, pool_size, threads

BUSY: Final = 0.90
"""Utilization that a layout is chosen for: the pass mark of MLPerf Storage."""
WORKERS: Final = (*range(1, 9), 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
CHECKED: Final = 4
"""Workers with which predictions were compared with measurements (``benchmarks/plan.py``)."""
_CHECKED_GBIT_S: Final = (1.0, 10.0)
_GBIT_S: Final = (1.0, 10.0, 25.0, 100.0)
_FASTER: Final = (1.0, 2.0, 4.0, 8.0)
_REPLICAS: Final = (2, 4, 8)
_CORES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_EACH: Final = 0.75
"""Share of what one worker gives that each of several has to give for the number of workers to be extrapolated."""
_DRAWS: Final = 400
_NEAR: Final = 1.25  # times that model and measurement may differ by without a word
_SESSION: Final = 0.02
"""Spread of the same code's speed from session to session, as ``compare --session-noise`` has it."""


class Planner:
    """Predictions for layouts, from a diagnosis and the costs of the service."""

    def __init__(
        self,
        diagnosis: Diagnosis,
        costs: Mapping[bool, Sequence[ServiceCost]],
        asked: ScaleRequest,
        proof: TrialRecord | None,
        rng: np.random.Generator,
    ) -> None:
        self._asked, self._figures, self._proof, self._rng = asked, diagnosis.figures, proof, rng
        evidence = diagnosis.evidence
        alone = self._figures.get("alone_s")
        alone_s = alone.value if alone is not None else None
        wall = self._figures["wall_s"]
        said = modelled(evidence, wall_s=wall.value, alone_s=alone_s)
        self._evidence: Evidence = said.model.evidence if said is not None and said.off is None else evidence
        self._off = said.off if said is not None else "no costs of its ops were read"
        self._here = known_cpus(evidence.environment) or 1.0
        self._step = consumer(self._evidence, alone_s)
        self._step_s = (self._step.alone_s + self._step.handoff_s) * self._relative(
            alone or self._figures.get("emulated_s")
        )
        self._measured = Pooled(1 / wall.value, 1 / wall.resamples).estimate()
        batches = evidence.batches
        size_bytes = batches.bytes / batches.cached if batches is not None else 0.0
        self._needs = {way: self._needs_of(known, size_bytes) for way, known in costs.items()}

    def _relative(self, figure: Pooled | None, session: float = _SESSION) -> FloatArray:
        """Draws of a figure over its value, the first of which is 1, wider by what sessions differ by."""
        spread = figure.resamples[: _DRAWS - 1] / figure.value if figure is not None and figure.value > 0 else 1.0
        return np.append(1.0, spread * np.exp(session * self._rng.standard_normal(_DRAWS - 1)))

    def _pace(self, cores: float, step: Consumer, processors: float) -> Pace:
        """Pace of the pipeline where the process sees so many cores, and has so many."""
        count = max(round(cores), 1)
        pipeline = (self._evidence.pipeline or Pipeline()).model_copy(update={"cpus": count})
        if count != round(self._here):
            pipeline = reset_autotune(pipeline, "")
        return pace(threads(pipeline, count), step, Machine(processors, pool_size(pipeline, count)))

    def _needs_of(self, costs: Sequence[ServiceCost], size_bytes: float) -> Needs:
        of_service = calibrated(costs, size_bytes, _DRAWS, self._rng)
        input_s, cpu = self._figures["input_alone_s"], self._figures.get("input_cpu_s")
        relative = self._relative(input_s)
        known = {*self._worker_cores()}
        making_s = {c: (self._pace(c, Consumer(), math.inf).period_s or input_s.value) * relative for c in known}
        splits = self._splits() if self._asked.sharding == "dynamic" else 0.0
        made_s = (cpu.value if cpu is not None else input_s.value) * self._relative(cpu or input_s)
        return Needs(
            step_s=self._step_s if self._step.alone_s else np.zeros(_DRAWS),
            step_cpu_s=self._step.cpu_s * self._relative(None),
            making_s=making_s,
            worker_cpu_s=made_s + of_service.worker_cpu_s + splits * of_service.split_worker_s,
            sending_s=of_service.worker_cpu_s,
            client_cpu_s=of_service.client_cpu_s,
            request_s=of_service.request_s,
            splits=splits,
            split_s=of_service.split_dispatcher_s,
            wire_bytes=of_service.wire_bytes,
        )

    def _splits(self) -> float:
        """Elements of the sources that a batch takes, each of which the dispatcher hands out."""
        pipeline = self._evidence.graph
        taken = elements_per_batch(pipeline)
        return max((taken.get(op.name, 1.0) for op in pipeline.ops if not inputs_of(op, pipeline)), default=1.0)

    @property
    def _cores(self) -> float:
        return self._asked.cores or self._here

    def _worker_cores(self) -> Iterator[float]:
        yield self._cores
        yield from (machine.cores for machine in self._machines())
        if self._proof is not None and self._proof.spec.workers is not None:
            yield self._proof.spec.workers.cores

    def _machines(self) -> tuple[MachineType, ...]:
        if self._asked.prices is not None:
            return self._asked.prices.machines
        return (MachineType(name=f"{self._cores:g} cores as here", cores=self._cores, gbit_s=USUAL_GBIT_S),)

    def _found(self, series: ScaleConditions, workers: int) -> tuple[Found, bool]:
        """Prediction of the better of both ways to send a batch, and whether it is the compressed one."""
        layout = Layout(workers=workers, client_cores=self._here, **dict(series))
        plain, compressed = (found(self._needs[one], layout) for one in (False, True))
        better = compressed.rate_per_s[0] > plain.rate_per_s[0] * 1.001
        return (compressed, True) if better else (plain, False)

    def _cell(self, series: ScaleConditions, workers: int) -> ScaleCell:
        said, compressed = self._found(series, workers)
        beyond = workers > CHECKED or series.gbit_s not in _CHECKED_GBIT_S
        return ScaleCell(
            workers=workers,
            compressed=compressed,
            throughput_per_s=_estimate(said.rate_per_s),
            utilization=_estimate(said.utilization),
            limited_by=said.limited_by,
            extrapolated=beyond or series.accelerator != 1 or series.replicas != 1,
            **dict(series),
        )

    def _local(self, cores: float, accelerator: float = 1.0) -> ScaleCell:
        """Prediction for the training in one process: what was measured, times what the model says that changes."""
        step = replace(self._step, alone_s=self._step.alone_s / accelerator)
        at, here = self._pace(cores, step, cores), self._pace(self._here, self._step, self._here)
        wall, busy_s = self._figures["wall_s"], self._step_s / accelerator
        period_s = np.append(wall.value, wall.resamples[: _DRAWS - 1]) * (at.period_s / here.period_s)
        rate = 1 / np.maximum(period_s, busy_s if self._step.alone_s else 0.0)
        return ScaleCell(
            workers=0,
            cores=cores,
            gbit_s=None,
            accelerator=accelerator,
            compressed=False,
            throughput_per_s=_estimate(rate),
            utilization=_estimate(np.minimum(busy_s * rate, 1.0) if self._step.alone_s else np.ones(_DRAWS)),
            limited_by=at.limited_by,
            extrapolated=cores != self._here or accelerator != 1,
        )

    def _knee(self, series: ScaleConditions) -> ScaleKnee:
        first, _ = self._found(series, 1)
        enough = np.maximum(np.ceil(first.enough), 1.0)
        at, _ = self._found(series, int(enough[0]))
        return ScaleKnee(
            **dict(series),
            workers=_estimate(enough),
            limited_by=first.ceiling_by,
            utilization=_estimate(at.utilization),
        )

    def _choices(self) -> Iterator[ScaleChoice]:
        """For each speed of the step the cheapest layout, or the one with fewest machines, that keeps it busy."""
        trainer = self._asked.prices.trainer_per_hour if self._asked.prices is not None else None
        for accelerator in _FASTER if self._step.alone_s else ():  # else there is nothing to keep busy
            local = self._local(self._here, accelerator)
            fit: list[tuple[MachineType | None, ScaleCell]] = []
            fit += [(None, local)] if local.utilization.low >= BUSY else []
            for machine in self._machines():
                series = ScaleConditions(
                    cores=machine.cores,
                    gbit_s=machine.gbit_s,
                    latency_s=self._asked.latencies_s[0],
                    accelerator=accelerator,
                )
                cells = (self._cell(series, workers) for workers in range(1, WORKERS[-1] + 1))
                best = next((cell for cell in cells if cell.utilization.low >= BUSY), None)
                fit += [(machine, best)] if best is not None else []
            if fit:
                yield min((_choice(*one, trainer) for one in fit), key=_worth)

    def _measured_here(self) -> ScaleProof | None:
        """Rates on workers of this machine, measured and by the model; ``None`` where none were measured."""
        if self._proof is None or self._proof.spec.workers is None:
            return None
        measured, asked = self._proof.workers, self._proof.spec.workers
        bare = replace(self._needs[False], step_s=np.zeros(_DRAWS), step_cpu_s=np.zeros(_DRAWS))
        rates: dict[int, FloatArray] = {}
        for count in sorted({one.workers for one in measured}):
            stretches = [one.batches / one.wall_s for one in measured if one.workers == count]
            if len(stretches) > 1:  # of one alone there is no telling how far it is off
                spread = np.std(stretches, ddof=1) / math.sqrt(len(stretches))
                errors = spread * self._rng.standard_t(len(stretches) - 1, _DRAWS - 1)
                rates[count] = np.maximum(np.mean(stretches) + np.append(0.0, errors), 1e-9)
        if not rates:
            return None
        needed, each = None, [rate / count for count, rate in rates.items()]
        if self._step.alone_s and each[-1][0] >= _EACH * each[0][0]:
            needed = _estimate(np.ceil(1 / (self._step_s * np.mean(each, axis=0))))
        return ScaleProof(
            cores=asked.cores,
            rates=tuple(
                ScaleMeasured(
                    workers=count,
                    measured_per_s=_estimate(rate),
                    predicted_per_s=_estimate(
                        found(bare, Layout(workers=count, cores=asked.cores, client_cores=self._here)).rate_per_s
                    ),
                )
                for count, rate in rates.items()
            ),
            needed=needed,
        )

    def scale(self) -> Scale:
        """All predictions."""
        here_s = self._pace(self._here, self._step, self._here).period_s
        usual = [
            ScaleConditions(cores=self._cores, gbit_s=gbit_s, latency_s=s)
            for s in self._asked.latencies_s
            for gbit_s in _GBIT_S
        ]
        own = ScaleConditions(cores=self._cores, latency_s=self._asked.latencies_s[0])
        faster = [own.model_copy(update={"accelerator": times}) for times in _FASTER[1:] if self._step.alone_s]
        series = [*usual, *faster, *(own.model_copy(update={"replicas": count}) for count in _REPLICAS)]
        cores = sorted({*map(float, _CORES), self._here})
        needs, apart = self._needs[False], 1 / (here_s * self._measured.estimate)
        plain = {name: value for name, value in vars(needs).items() if name not in ("making_s", "splits")}
        return Scale(
            run=self._asked.run,
            needs={
                **{name: _estimate(value) for name, value in plain.items()},
                "making_s": _estimate(needs.making_s[self._cores]),
                "compressed_wire_bytes": _estimate(self._needs[True].wire_bytes),
                "splits": Estimate.exactly(needs.splits),
            },
            measured_per_s=self._measured,
            predicted_per_s=_estimate(1 / (here_s * self._relative(None))),
            sharding=self._asked.sharding,
            cells=tuple(
                itertools.chain(
                    map(self._local, cores), (self._cell(one, workers) for one in series for workers in WORKERS)
                )
            ),
            knees=tuple(map(self._knee, series)),
            choices=tuple(self._choices()),
            proof=self._measured_here(),
            currency=self._asked.prices.currency if self._asked.prices is not None else "",
            notes=(
                self._off
                or f"By the model it is {apart:.1f} times as fast as was measured: others disturbed it, or "
                "the model lacks something.",
            )
            if self._off or not 1 / _NEAR < apart < _NEAR
            else (),
        )


def _estimate(draws: FloatArray) -> Estimate:
    return interval_of(float(draws[0]), draws[1:])


def _choice(machine: MachineType | None, cell: ScaleCell, trainer: float | None) -> ScaleChoice:
    price = None if machine is None or machine.price_per_hour is None else machine.price_per_hour * cell.workers
    if machine is None and trainer is not None:
        price = 0.0
    name = "this machine alone" if machine is None else machine.name
    return ScaleChoice(machine=name, price_per_hour=None if price is None else price + (trainer or 0.0), **dict(cell))


def _worth(choice: ScaleChoice) -> tuple[float, int]:
    unknown = math.inf if choice.workers else 0.0
    return unknown if choice.price_per_hour is None else choice.price_per_hour, choice.workers
