"""What a scenario plans: its arms, with the baseline a second time where it can be, and how far a sweep goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xttsbench.errors import InvalidInputError
from xttsbench.records.plan import Accelerator, Comparison, PlannedArm, Procedure
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


def plan_comparison(scenario: Scenario, accelerators: Sequence[Accelerator]) -> Comparison:
    """The comparison that a scenario asks for.

    The baseline comes first. From two blocks on it is measured a second time in each (the A/A arm): what differs
    there is the session's noise.

    Args:
        scenario: validated.
        accelerators: its accelerators, parsed; a group of arms for each.

    Raises:
        InvalidInputError: the grid makes too many arms or none, two accelerators have one label, or an arm changes
            only its step, and an accelerator is emulated and stands for it.
    """
    configs = configurations(scenario)
    labels = [accelerator.label for accelerator in accelerators]
    if twice := next((label for index, label in enumerate(labels) if label in labels[:index]), None):
        raise InvalidInputError(f"{scenario.name}: accelerator: {twice!r} is there twice; name each device once.")
    base = dict(scenario.base)
    if scenario.data is not None:
        base["data"] = scenario.data
    arms = [
        PlannedArm(id=name, role="candidate" if index else "baseline", config=config, kwargs=base | config)
        for index, (name, config) in enumerate(configs.items())
    ]
    if scenario.blocks >= 2:
        again = arms[0].model_copy(update={"id": arms[0].id + AGAIN, "role": "aa"})
        arms.append(again)
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


def plan_procedure(scenario: Scenario) -> Procedure:
    """How a sweep of the scenario looks for the best arm.

    Where it says nothing about cost, the bundled workload's is :data:`BUNDLED_COST`; of another target nothing is
    known, and equally fast arms stay in their order.
    """
    sweep = scenario.sweep
    cost = sweep.cost if sweep.cost is not None else BUNDLED_COST if scenario.bundled else ()
    return Procedure(blocks=sweep.blocks, cost=tuple(cost))


def only_step_differs(comparison: Comparison, arm: PlannedArm) -> bool:
    """Whether the data of an arm of the bundled workload are the baseline's by construction."""
    different = _different(comparison, arm)
    return comparison.bundled and bool(different) and different <= set(STEP_KEYS)


def other_batches(comparison: Comparison, arm: PlannedArm) -> bool:
    """Whether an arm of the bundled workload puts the clips into other batches, which is what was asked for."""
    return comparison.bundled and not _different(comparison, arm).isdisjoint(BATCH_KEYS)


def _different(comparison: Comparison, arm: PlannedArm) -> set[str]:
    """Arguments that are not the baseline's."""
    ours, theirs = comparison.baseline.kwargs, arm.kwargs
    missing = object()
    return {key for key in ours.keys() | theirs.keys() if ours.get(key, missing) != theirs.get(key, missing)}
