"""From a scenario to its trials: configurations, their order in seeded random blocks, what each trial is told. Pure.

Drift of the machine (heat, neighbours, a filling page cache) is shared by the arms of a block that stand close
together, so the arms of one accelerator follow one another, in an order drawn anew for each block (randomised complete
blocks, Fisher 1935). With two arms the orders come in pairs, each the reverse of the other (ABBA), so that a drift
within the block is in both arms alike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from xttsbench.errors import InvalidInputError
from xttsbench.records.code import Checkout, ScriptAgain
from xttsbench.records.plan import Accelerator, Comparison, PlannedVariant, Procedure, RunPlan
from xttsbench.records.trial import MAIN_KINDS, TrialKind, TrialSpec
from xttsbench.scenario.grid import configurations
from xttsbench.scenario.settings import Scenario

AGAIN: Final = ":again"
"""Ends the id of the baseline that is measured a second time; no scenario can give such an id."""
STEP_KEYS: Final = ("mode", "precision")
"""Arguments of the bundled workload that its step has alone: the data do not pass through them."""
BATCH_KEYS: Final = ("batch_size", "tokens_per_batch")
"""Arguments of the bundled workload that put the same clips into other batches."""
BUNDLED_COST: Final = ("prefetch", "batch_size", "tokens_per_batch", "cache", "device_prefetch", "workers", "threads")
"""Arguments of the bundled workload whose smaller value is cheaper, the weightiest first: memory, then threads."""


@dataclass(frozen=True)
class Job:
    """Settings that all trials of a diagnosis share.

    Attributes:
        script: the target is a script. It is run as a whole, once, or a second time where ``repeat`` allows that.
        arguments: the script's.
        private: directory of the run, where what a script writes elsewhere is kept in memory.
        no_step_s: seconds without a sign of a step after which a script is stopped.
        stretch_s: for the target as it is after its rounds, in its first process.
        again: what is known of a script that has run; without it its next trial is the first one anew.
        checkout: tree of another revision, whose code it is.
        assume_pure: functions that the user says are pure.
    """

    target: str
    kwargs: dict[str, Any]
    emulated_ms: tuple[float, ...]
    steps: int
    window_s: float
    seed: int
    stretch_s: float = 0.0
    profile_dir: str | None = None
    script: bool = False
    arguments: tuple[str, ...] = ()
    repeat: bool = False
    again: ScriptAgain | None = None
    private: str | None = None
    no_step_s: float | None = None
    checkout: Checkout | None = None
    assume_pure: tuple[str, ...] = ()

    def spec(self, number: int, kind: TrialKind, *, block: int = 0, share: float = 1.0) -> TrialSpec:
        """The specification of one trial of this job."""
        return TrialSpec(
            trial_id=f"{number:03d}-{kind}",
            block=block,
            kind=kind,
            target=self.target,
            kwargs=self.kwargs,
            arguments=self.arguments,
            script=self.again,
            checkout=self.checkout,
            assume_pure=self.assume_pure,
            private=self.private if kind == "script" else None,
            no_step_s=self.no_step_s if kind == "script" else None,
            emulated_ms=self.emulated_ms,
            steps=self.steps,
            window_s=self.window_s * share,
            stretch_s=self.stretch_s if kind == "ladder" and block == 0 else 0.0,
            profile_dir=self.profile_dir if kind in MAIN_KINDS and block == 0 else None,
            seed=self.seed,
        )


def job_of(plan: RunPlan, window_s: float, **more: Any) -> Job:
    """The job of a run's plan; ``more`` are settings that a plan does not have."""
    own = (plan.target, plan.kwargs, plan.accelerator.step_times_ms, plan.steps, window_s, plan.seed)
    return replace(Job(*own), arguments=plan.arguments, assume_pure=plan.assume_pure, **more)


def plan_comparison(scenario: Scenario, accelerators: Sequence[Accelerator]) -> Comparison:
    """The comparison that a scenario asks for, a group of configurations for each parsed accelerator.

    The baseline comes first. From two blocks on it is measured a second time in each (the A/A configuration): what
    differs there is the session's noise.

    Raises:
        InvalidInputError: the grid makes too many configurations or none, two accelerators have one label, or a
            configuration changes only its step, and an accelerator is emulated and stands for it.
    """
    configs = configurations(scenario)
    label, times = Counter(accelerator.label for accelerator in accelerators).most_common(1)[0]
    if times > 1:
        raise InvalidInputError(f"{scenario.name}: accelerator: {label!r} is there twice; name each device once.")
    base = scenario.base | ({"data": scenario.data} if scenario.data is not None else {})
    arms = [
        PlannedVariant(id=name, role="candidate" if index else "baseline", config=config, kwargs=base | config)
        for index, (name, config) in enumerate(configs.items())
    ]
    if scenario.blocks >= 2:
        arms.append(arms[0].model_copy(update={"id": arms[0].id + AGAIN, "role": "aa"}))
    comparison = Comparison(
        name=scenario.name,
        description=scenario.description,
        target=scenario.callable_name,
        bundled=scenario.bundled,
        arms=tuple(arms),
        accelerators=tuple(accelerators),
        blocks=scenario.blocks,
        steps=scenario.steps,
        window_s=scenario.window_s,
        margin=scenario.margin,
        loss_tolerance=scenario.loss_tolerance,
        trial_s=scenario.limits.trial_s,
        stall_s=scenario.limits.stall_s,
    )
    idle = [arm.id for arm in comparison.arms if arm.role == "candidate" and only_step_differs(comparison, arm)]
    emulated = next((found for found in accelerators if found.kind == "emulated"), None)
    if idle and emulated is not None:
        raise InvalidInputError(
            f"{scenario.name}: {', '.join(idle)} differ from the baseline only in {' and '.join(STEP_KEYS)}, which "
            f"behind the {emulated.label} change nothing, since it stands for the step; take the real accelerator."
        )
    return comparison


def plan_procedure(scenario: Scenario, blocks: int | None = None) -> Procedure:
    """Procedure of the scenario's sweep, in the given number of blocks or its own.

    Where it says nothing about cost, the bundled workload's is :data:`BUNDLED_COST`; of another target nothing is
    known, and equally fast configurations stay in their order.
    """
    sweep = scenario.sweep
    cost = sweep.cost if sweep.cost is not None else BUNDLED_COST if scenario.bundled else ()
    return Procedure(blocks=sweep.blocks if blocks is None else blocks, cost=tuple(cost))


def only_step_differs(comparison: Comparison, arm: PlannedVariant) -> bool:
    """Whether the data of a configuration of the bundled workload are the baseline's by construction."""
    different = _different(comparison, arm)
    return comparison.bundled and bool(different) and different <= set(STEP_KEYS)


def other_batches(comparison: Comparison, arm: PlannedVariant) -> bool:
    """Whether a configuration of the bundled workload puts the clips into other batches, as was asked for."""
    return comparison.bundled and not _different(comparison, arm).isdisjoint(BATCH_KEYS)


def _different(comparison: Comparison, arm: PlannedVariant) -> set[str]:
    ours, theirs = comparison.baseline.kwargs, arm.kwargs
    missing = object()
    return {key for key in ours.keys() | theirs.keys() if ours.get(key, missing) != theirs.get(key, missing)}


@dataclass(frozen=True)
class Part:
    """Part of a comparison that one device measures: some configurations, with the baseline beside them.

    Attributes:
        comparison: these configurations.
        block: number of its processes; where each round takes new ones, of the first.
        rounds: at most; with 0 only the data are compared.
        first: number of its first trial; ``None`` for as many as there were before.
    """

    comparison: Comparison
    block: int
    rounds: int
    first: int | None = None


_TOGETHER: Final = 4
"""Fewest candidates of a part: its baseline costs as much as one or two, and parts are not paired with one another."""


def divide(
    whole: Comparison,
    now: Comparison,
    block: int,
    rounds: Sequence[int],
    devices: int,
    *,
    apart: bool = False,
    beside: Collection[str] = (),
) -> tuple[Part, ...]:
    """Parts of a comparison for devices that measure at a time; a single one where there is one device.

    Candidates are shared out where that is allowed (``apart``) and they are many; devices that are left measure the
    same ones in processes of their own. What follows depends on the number of devices, and not on which they are.

    Args:
        whole: comparison of the run, by which trials are numbered.
        now: configurations that are measured now.
        block: number of the first part.
        rounds: for each process of a configuration that may be measured at a time.
        devices: how many there are.
        apart: whether candidates may be in parts of their own.
        beside: candidates that are in all parts.
    """
    if devices == 1:
        return (Part(now, block, rounds[0]),)
    names = [arm.id for arm in now.arms if arm.role == "candidate" and arm.id not in beside]
    groups = max(min(devices, len(names) // _TOGETHER), 1) if apart else 1
    numbers = (len(whole.arms) + 1) * len(whole.accelerators)
    parts = []
    for copied in rounds[: max(devices // groups, 1)]:
        for group in range(groups):
            others = {*names} - {*names[group::groups]}
            arms = tuple(arm for arm in now.arms if arm.id not in others)
            parts.append(Part(now.model_copy(update={"arms": arms}), block, copied, 1 + block * numbers))
            block += max(copied, 1)
    return tuple(parts)


PARITY_BATCHES: Final = 4
"""Batches that are compared: a slow loader takes tenths of a second for each, and the baseline is read twice."""
LOSS_STEPS: Final = 3
"""Steps whose losses are compared: the second and third are taken with what the first has learnt."""
_TRAINING_KEYS: Final = (*STEP_KEYS, "recipe", "seed")  # Arguments of the bundled workload that its step depends on
IMPORT_S: Final = 6.0
"""Starting another helper: TensorFlow's import, on two cores."""
_AROUND_S: Final = 1.5  # Of a trial outside its window: fork, building the target, its first batches
_SHORT_S: Final = 2.0  # A window that is not shortened further for the sake of more blocks
_SHORTEST_S: Final = 0.5


def arm_trial(comparison: Comparison, slot: Slot, *, number: int, block: int, window_s: float, seed: int) -> TrialSpec:
    """The specification of one configuration's trial, which measures for ``window_s`` seconds at most.

    Each block has a seed of its own, made from the comparison's, for TensorFlow and NumPy, and for the order of the
    bundled workload's clips: configurations of one block see the same batches, and what is peculiar to some batches is
    noise between the blocks, which the interval shows.
    """
    seed = (seed + block) % 2**31
    name = re.sub(r"[^\w.=,:+-]+", "-", slot.arm.id)  # without what a fix's name may hold and a file's may not
    return TrialSpec(
        trial_id=f"{number:03d}-{name}" + ("-emulated" if slot.accelerator.step_times_ms else ""),
        block=block,
        kind="arm",
        target=slot.arm.target or comparison.target,
        arguments=comparison.arguments,
        script=slot.arm.script or comparison.script,
        checkout=slot.arm.checkout,
        kwargs=_behind(comparison, slot.arm, seed, emulated=bool(slot.accelerator.step_times_ms)),
        emulated_ms=slot.accelerator.step_times_ms,
        steps=comparison.steps,
        window_s=window_s,
        seed=seed,
        arm=slot.arm.id,
        group=comparison.name,
        fix=slot.arm.fix,
        patched=slot.arm.patched,
        hashed=comparison.hashed,
        fill_caches=comparison.fill_caches,
        fill_s=comparison.fill_s,
        source_limit=comparison.source_limit,
    )


def parity_trial(
    comparison: Comparison, arms: Sequence[PlannedVariant], *, number: int, block: int, seed: int
) -> TrialSpec:
    """The specification of the trial that compares the data and the losses of those configurations with the baseline's.

    The losses of the bundled workload are compared where a configuration's step is another than the baseline's and runs
    on the real accelerator; those of another target, whose arguments may change anything, of every configuration.
    """
    trained = [arm.id for arm in arms if _other_step(comparison, arm)]
    return TrialSpec(
        trial_id=f"{number:03d}-parity",
        block=block,
        kind="parity",
        target=comparison.target,
        kwargs=_in_order(comparison, comparison.baseline, with_step=bool(trained)),
        steps=PARITY_BATCHES,
        seed=seed,
        arm=comparison.baseline.id,
        group=comparison.name,
        others={arm.id: _in_order(comparison, arm, with_step=arm.id in trained) for arm in arms},
        same_data=tuple(arm.id for arm in arms if only_step_differs(comparison, arm)),
        loss_steps=LOSS_STEPS if trained or not comparison.bundled else 0,
        loss_tolerance=comparison.loss_tolerance,
    )


def parity_arms(comparison: Comparison) -> tuple[tuple[PlannedVariant, ...], dict[str, str]]:
    """The candidates whose data or losses may differ, and for the others why they need no comparison."""
    candidates = [arm for arm in comparison.arms if arm.role == "candidate"]
    skipped = {}
    for arm in candidates:
        if other_batches(comparison, arm):
            skipped[arm.id] = "it puts the same clips into other batches, as it was asked to"
        elif only_step_differs(comparison, arm) and not _other_step(comparison, arm):
            skipped[arm.id] = "it differs from the baseline only in its step, which an emulated accelerator stands for"
    return tuple(arm for arm in candidates if arm.id not in skipped), skipped


def window_within(
    comparison: Comparison, budget_s: float, *, blocks: int, setup_s: float = 0.0, warm: bool = False
) -> float:
    """Seconds that each trial may measure so that the blocks fit into a budget, as far as that is sensible.

    Never more than the comparison's own window. Where all blocks would fit only with windows under two seconds, they
    stay at that, and fewer blocks fit; where not even one block does, they are shortened further. Building the target
    takes ``setup_s``; where it is ``warm`` the first block needs no new helper process.
    """

    def fitting(count: int) -> float:
        return (budget_s - IMPORT_S * (count - warm)) / (count * _trials(comparison)) - _around_s(setup_s)

    return min(comparison.window_s, max(fitting(blocks), min(_SHORT_S, fitting(1)), _SHORTEST_S))


def expected_s(comparison: Comparison, window_s: float, *, setup_s: float = 0.0, warm: bool = False) -> float:
    """Seconds that a block is expected to take before one has been run; for the arguments see :func:`window_within`."""
    return IMPORT_S * (not warm) + _trials(comparison) * (window_s + _around_s(setup_s))


def _trials(comparison: Comparison) -> int:
    return len(comparison.arms) * len(comparison.accelerators)


def _around_s(setup_s: float) -> float:
    return max(_AROUND_S, setup_s + 1.0)


def _behind(comparison: Comparison, arm: PlannedVariant, seed: int, *, emulated: bool) -> dict[str, Any]:
    """The arguments of a configuration; the bundled workload leaves its step to an emulated accelerator."""
    if not comparison.bundled:
        return dict(arm.kwargs)
    return {"seed": seed} | arm.kwargs | ({"with_step": False} if emulated else {})


def _other_step(comparison: Comparison, arm: PlannedVariant) -> bool:
    """Whether a configuration of the bundled workload has another step than the baseline, and one that runs."""
    if not comparison.bundled or all(accelerator.step_times_ms for accelerator in comparison.accelerators):
        return False
    if not all(planned.kwargs.get("with_step", True) for planned in (arm, comparison.baseline)):
        return False
    ours, theirs = comparison.baseline.kwargs, arm.kwargs
    return any(ours.get(key) != theirs.get(key) for key in _TRAINING_KEYS)


def _in_order(comparison: Comparison, arm: PlannedVariant, *, with_step: bool) -> dict[str, Any]:
    """The arguments of a configuration for comparing it: in order, since an order that may vary is no other data."""
    if not comparison.bundled:
        return dict(arm.kwargs)
    return arm.kwargs | {"with_step": with_step, "deterministic": True}


_ABBA: int = 2  # Configurations, the baseline's second run not counted, up to which orders come in pairs


@dataclass(frozen=True, slots=True)
class Slot:
    """One trial of a block: which configuration on which accelerator."""

    arm: PlannedVariant
    accelerator: Accelerator


def block_order(comparison: Comparison, block: int, seed: int) -> tuple[Slot, ...]:
    """Every configuration on every accelerator once. A block's order depends on the seed and its number alone."""
    paired = sum(arm.role != "aa" for arm in comparison.arms) <= _ABBA
    rng = np.random.default_rng([seed, block // 2 if paired else block])
    groups = [
        [Slot(comparison.arms[arm], accelerator) for arm in rng.permutation(len(comparison.arms))]
        for accelerator in comparison.accelerators
    ]
    slots = [slot for group in rng.permutation(len(groups)) for slot in groups[group]]
    return tuple(reversed(slots) if paired and block % 2 else slots)
