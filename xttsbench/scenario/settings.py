"""The fields of a scenario and what each may hold; a scenario is one question, asked of several configurations."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from xttsbench.scenario.fields import Keyword, Settings
from xttsbench.scenario.space import Space

BUNDLED: Final = "xttsbench.targets.bundled:make_workload"
"""The target that ``workload: xtts`` stands for."""
MOST_STEPS: Final = 5000


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class LimitSettings(Settings):
    """What ends a trial that does not end by itself."""

    trial_s: float = Field(300.0, gt=0)
    """Seconds for all of it."""
    stall_s: float = Field(60.0, gt=0)
    """Seconds without a sign of life."""


class SweepSettings(Settings):
    """How ``xttsbench sweep`` looks for the best arm."""

    blocks: int = Field(16, ge=2, le=100)
    """Processes of each arm, at most; one that is decided, or cannot win, is measured no further."""
    cost: list[Keyword] | None = None
    """Keys whose smaller value is cheaper, the weightiest first: of equally fast arms the cheaper one wins."""


class Scenario(Space):
    """One question, asked of several configurations: which is faster, and by how much?"""

    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_. -]*$")
    """What the run and its group of arms are called."""
    description: str = ""
    """The question that it asks."""
    target: str | None = None
    """What is measured, ``module:callable`` or ``file.py:callable``, as on the command line."""
    workload: Literal["xtts"] | None = None
    """The bundled speech workload, in place of a target."""
    data: str | None = None
    """Directory of the bundled workload's data set."""
    accelerator: Annotated[
        list[str],
        BeforeValidator(_one_or_more, json_schema_input_type=str | list[str]),
    ] = Field(["real"], min_length=1, max_length=8)
    """``real``, ``emulated:MS``, ``emulated:FILE``, or a list of them: a group of arms for each."""
    steps: int = Field(240, ge=4, le=MOST_STEPS)
    """Steps that a trial measures; fast ones are measured for two seconds even where there are enough."""
    window_s: float = Field(15.0, gt=0, le=600)
    """Seconds that a trial measures at most."""
    blocks: int = Field(8, ge=1, le=100)
    """How often ``run`` measures every arm, at most; one that is decided is measured no further."""
    margin: float = Field(0.02, gt=0, lt=1)
    """The smallest difference that matters, as a share."""
    loss_tolerance: float = Field(1e-3, gt=0, lt=1)
    """How far the losses of an arm with another step may be from the baseline's, relative to them."""
    budget_s: float = Field(1800.0, gt=0)
    """Seconds for everything; no block begins that is not expected to end within."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Of the order, of the trials, and of the intervals."""
    limits: LimitSettings = LimitSettings()
    """What ends a trial."""
    sweep: SweepSettings = SweepSettings()
    """How a sweep looks for the best arm."""

    @property
    def bundled(self) -> bool:
        """Whether the bundled workload is measured."""
        return self.workload is not None or self.target == BUNDLED

    @property
    def callable_name(self) -> str:
        """The target's name, whether it was given or stands behind ``workload``."""
        return self.target or BUNDLED
