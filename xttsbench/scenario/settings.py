"""The fields of a scenario and what each may hold; a scenario is one question, asked of several configurations.

:class:`Space` is the part that says which configurations are measured: a base, and arms or a grid on top of it.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from xttsbench.records.base import MARGIN

_LARGEST: Final = 2**63


class Settings(BaseModel):
    """Frozen, strict about types, and without keys that it does not know; a field's docstring is its description."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def _plain(value: Any) -> Any:
    """A value that survives JSON: what a trial is told crosses a pipe."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return _finite(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        bad = next((key for key in value if not isinstance(key, str)), None)
        if bad is not None:
            raise ValueError(f"keys must be text, got {bad!r}")
        return {key: _plain(item) for key, item in value.items()}
    raise ValueError(f"text, a number, true, false, null or a list of them is expected, got {value!r}; quote it")


def _finite(value: int | float) -> int | float:
    if isinstance(value, int):
        if not -_LARGEST <= value < _LARGEST:
            raise ValueError("a whole number of at most 64 bits is expected, got a larger one")
    elif not math.isfinite(value):
        raise ValueError(f"a finite number is expected, got {value}")
    return value


def _keyword(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"a keyword argument's name is expected, got {name!r}")
    return name


Value = Annotated[Any, AfterValidator(_plain)]
Keyword = Annotated[str, AfterValidator(_keyword)]
Config = dict[Keyword, Value]


MOST_ARMS: Final = 64
"""Configurations that ``run`` measures at most."""
MOST_SWEEP_ARMS: Final = 10_000
"""Configurations of a sweep at most; also the longest list."""
_ID: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.,=+-]*$"


class VariantSettings(Settings):
    """One configuration: what it changes of the base."""

    id: str | None = Field(None, min_length=1, max_length=60, pattern=_ID)
    """Name in the report; without one it is derived from the configuration."""
    config: Config = Field({})
    """Keyword arguments on top of the base."""


Values = Annotated[list[Value], Field(min_length=1, max_length=MOST_SWEEP_ARMS)]


class Space(Settings):
    """The configurations that a scenario measures."""

    base: Config = Field({})
    """Keyword arguments that all configurations share."""
    arms: Annotated[list[VariantSettings], Field(min_length=1, max_length=MOST_SWEEP_ARMS)] | None = None
    """Configurations on top of the base."""
    grid: Annotated[dict[Keyword, Values], Field(min_length=1)] | None = None
    """Key to values, in place of configurations: their product."""
    baseline: str | None = None
    """The configuration that the others are compared with, by its id; without it the first."""

    @model_validator(mode="before")
    @classmethod
    def _absent(cls, content: Any) -> Any:
        """A key that is written without a value is one that is not written: ``base:`` alone is no base."""
        if not isinstance(content, dict):
            return content
        kept = ("arms", "grid")  # an empty list of configurations is no wish for none
        return {key: value for key, value in content.items() if value is not None or key in kept}


BUNDLED: Final = "xttsbench.targets.bundled:make_workload"
"""The target that ``workload: xtts`` stands for."""
MOST_STEPS: Final = 5000


class LimitSettings(Settings):
    """Time limits of a trial that does not end by itself."""

    trial_s: float = Field(300.0, gt=0)
    """Seconds for all of it."""
    stall_s: float = Field(60.0, gt=0)
    """Seconds without a sign of life."""


class SweepSettings(Settings):
    """Settings of ``xttsbench sweep``, which looks for the best configuration."""

    blocks: int = Field(20, ge=2, le=100)
    """Processes of each configuration, at most; one that is decided, or cannot win, is measured no further."""
    cost: list[Keyword] | None = None
    """Keys whose smaller value is cheaper, the weightiest first: of equally fast configurations the cheaper one
    wins."""


class Scenario(Space):
    """One question, asked of several configurations: which is faster, and by how much?"""

    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_. -]*$")
    """Name of the run and of its group of configurations."""
    description: str = ""
    """The question that it asks."""
    target: str | None = None
    """Target to measure, ``module:callable`` or ``file.py:callable``, as on the command line."""
    workload: Literal["xtts"] | None = None
    """The bundled speech workload, in place of a target."""
    data: str | None = None
    """Directory of the bundled workload's data set."""
    accelerator: Annotated[
        list[str],
        BeforeValidator(
            lambda value: [value] if isinstance(value, str) else value, json_schema_input_type=str | list[str]
        ),
    ] = Field(["real"], min_length=1, max_length=8)
    """``real``, ``emulated:MS``, ``emulated:FILE``, or a list of them: a group of configurations for each."""
    steps: int = Field(240, ge=4, le=MOST_STEPS)
    """Steps that a trial measures; fast ones are measured for two seconds even where there are enough."""
    window_s: float = Field(15.0, gt=0, le=600)
    """Seconds that a trial measures at most."""
    blocks: int = Field(24, ge=1, le=100)
    """Most measurements of every configuration by ``run``; one that is decided is measured no further."""
    margin: float = Field(MARGIN, gt=0, lt=1)
    """The smallest difference that matters, as a share."""
    loss_tolerance: float = Field(1e-3, gt=0, lt=1)
    """Largest relative difference from the baseline's losses, for a configuration with another step."""
    budget_s: float = Field(1800.0, gt=0)
    """Seconds for everything; no block begins that is not expected to end within."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Seed of the order, of the trials, and of the intervals."""
    limits: LimitSettings = LimitSettings()
    """Time limits of a trial."""
    sweep: SweepSettings = SweepSettings()
    """Settings of a sweep for the best configuration."""

    @property
    def bundled(self) -> bool:
        """Whether the bundled workload is measured."""
        return self.workload is not None or self.target == BUNDLED

    @property
    def callable_name(self) -> str:
        """The target's name, whether it was given or stands behind ``workload``."""
        return self.target or BUNDLED
