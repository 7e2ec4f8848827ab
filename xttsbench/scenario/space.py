"""The part of a scenario that says which configurations are measured: a base, and arms or a grid on top of it."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import Discriminator, Field, Tag, WithJsonSchema, model_validator

from xttsbench.scenario.fields import Config, Keyword, Number, Settings, Value

MOST_ARMS: Final = 64
"""Arms that ``run`` measures at most, after ``skip``."""
MOST_SWEEP_ARMS: Final = 1024
"""Arms of a sweep at most, before ``skip`` and after it; also the longest list and range."""
_ID: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.,=+-]*$"


class ArmSettings(Settings):
    """One configuration: what it changes of the base."""

    id: str | None = Field(None, min_length=1, max_length=60, pattern=_ID)
    """Its name in the report; without one it is named by its configuration."""
    config: Config = Field({})
    """Keyword arguments on top of the base."""


class Range(Settings):
    """Numbers from one to another, both ends included: by steps of 1, by another step, or by a factor."""

    first: Number = Field(alias="from")
    """The first number."""
    last: Number = Field(alias="to")
    """The last number, unless a step ends short of it."""
    step: Number | None = None
    """What each number is above the one before; above 0."""
    factor: Number | None = None
    """How many times the one before each number is; above 1."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if self.step is not None and self.factor is not None:
            raise ValueError("give a step or a factor, not both")
        if self.step is not None and self.step <= 0:
            raise ValueError(f"the step must be above 0, got {self.step}")
        if self.factor is not None and (self.factor <= 1 or self.first <= 0):
            raise ValueError(f"a factor above 1 from above 0 is expected, got {self.factor} from {self.first}")
        if self.first > self.last:
            raise ValueError(f"from ({self.first}) is above to ({self.last})")
        return self


class NamedRange(Settings):
    """The values that ``ranges`` has under a name."""

    range: str
    """The name."""


class Bounds(Settings):
    """Numbers between two, both included."""

    min: Number | None = None
    """The smallest."""
    max: Number | None = None
    """The largest."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("give min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min ({self.min}) is above max ({self.max})")
        return self


def _form_of_listed(value: Any) -> str:
    return "(range)" if isinstance(value, dict | Range) else "(list)"


def _form_of_values(value: Any) -> str:
    named = isinstance(value, NamedRange) or (isinstance(value, dict) and "range" in value)
    return "(name)" if named else _form_of_listed(value)


def _form_of_condition(value: Any) -> str:
    return "(bounds)" if isinstance(value, dict | Bounds) else "(value)"


def _form_of_baseline(value: Any) -> str:
    return "(config)" if isinstance(value, dict) else "(id)"


# A tag in parentheses says which form was read; no key of a file can look like it, and no message shows it.
_List = Annotated[list[Value], Field(min_length=1), Tag("(list)")]
_Range = Annotated[Range, Tag("(range)")]
Listed = Annotated[_List | _Range, Discriminator(_form_of_listed)]
Values = Annotated[_List | _Range | Annotated[NamedRange, Tag("(name)")], Discriminator(_form_of_values)]
_Plain = Annotated[Value, WithJsonSchema({"type": ["string", "number", "boolean", "null", "array"]}), Tag("(value)")]
Wanted = Annotated[Annotated[Bounds, Tag("(bounds)")] | _Plain, Discriminator(_form_of_condition)]
Axes = Annotated[dict[Keyword, Values], Field(min_length=1)]
Condition = Annotated[dict[Keyword, Wanted], Field(min_length=1)]
Named = Annotated[
    Annotated[str, Tag("(id)")] | Annotated[Config, Field(min_length=1), Tag("(config)")],
    Discriminator(_form_of_baseline),
]


class Space(Settings):
    """The configurations that a scenario measures."""

    base: Config = Field({})
    """Keyword arguments that all arms share."""
    arms: Annotated[list[ArmSettings], Field(min_length=1, max_length=MOST_SWEEP_ARMS)] | None = None
    """Configurations on top of the base."""
    grid: Axes | None = None
    """Key to values, in place of arms: their product. Values are a list, a range, or the name of one of ``ranges``."""
    zip: Axes | None = None
    """Key to values that advance together, as many of each; multiplied with the grid."""
    ranges: dict[str, Listed] = Field({})
    """Lists and ranges with a name, for several keys of the grid."""
    skip: list[Condition] = Field([])
    """Conditions; a combination that meets one is left out. Each is key to value, to a list, or to min and max."""
    baseline: Named | None = None
    """The arm that the others are compared with, by its id or by keys and values; without it the first."""

    @model_validator(mode="before")
    @classmethod
    def _absent(cls, content: Any) -> Any:
        """A key that is written without a value is one that is not written: ``base:`` alone is no base."""
        if not isinstance(content, dict):
            return content
        kept = ("arms", "grid", "zip")  # an empty list of arms is no wish for none
        return {key: value for key, value in content.items() if value is not None or key in kept}
