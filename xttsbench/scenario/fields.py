"""What the keys of a scenario may hold: plain values, numbers, configurations, and the base of all its models."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, WithJsonSchema

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


def _number(value: Any) -> int | float:
    """A number that keeps its type: a union of the two would say everything twice."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"a number is expected, got {str(value)[:60]!r}")
    return _finite(value)


def _keyword(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"a keyword argument's name is expected, got {name!r}")
    return name


Value = Annotated[Any, AfterValidator(_plain)]
Number = Annotated[Any, AfterValidator(_number), WithJsonSchema({"type": "number"})]
Keyword = Annotated[str, AfterValidator(_keyword)]
Config = dict[Keyword, Value]
