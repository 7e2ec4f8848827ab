"""Options of the bundled workload and checks of their values: free of TensorFlow and of the data.

A scenario's keys are checked here before anything is started; :func:`xttsbench.targets.bundled.make_workload` checks
its arguments by the same record.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from xttsbench.records.base import Record
from xttsbench.shipped import available
from xttsbench.xtts.loaders import KEEPING, LOADERS

MODES: Final = ("graph", "eager", "xla")
PRECISIONS: Final = ("float32", "tf32", "mixed_bfloat16", "mixed_float16")
_KNOWN: Final[dict[str, tuple[str, ...]]] = {"loader": tuple(LOADERS), "mode": MODES, "precision": PRECISIONS}


class Configuration(Record):
    """The keyword arguments of :func:`xttsbench.targets.bundled.make_workload`, which describes them.

    Strict: text is no number and 1 is no truth value, for in a scenario they are more often slips than meant.
    """

    model_config = ConfigDict(strict=True)

    loader: str = "numpy_wav"
    mode: str = "graph"
    precision: str = "float32"
    batch_size: int | None = Field(None, ge=1)
    tokens_per_batch: int | None = Field(None, ge=1)
    prefetch: int = Field(-1, ge=-1)
    device_prefetch: int = Field(0, ge=0)
    workers: int = Field(-1, ge=-1)
    threads: int = Field(0, ge=0, le=1024)
    deterministic: bool = True
    cache: bool = False
    bucketing: bool = True
    seed: int = Field(0, ge=0, lt=2**31)
    recipe: str = "tiny"
    data: str | None = None
    features: str | None = None
    with_step: bool = True

    @field_validator(*_KNOWN)
    @classmethod
    def _known(cls, value: str, info: ValidationInfo) -> str:
        known = _KNOWN[info.field_name or ""]
        if value not in known:
            raise ValueError(f"one of {', '.join(known)} is expected, got {value!r}")
        return value

    @field_validator("recipe")
    @classmethod
    def _shipped(cls, value: str) -> str:
        known = available("training")
        if value not in known:
            near = difflib.get_close_matches(value, known, n=3) or known
            raise ValueError(f"no training recipe is called {value!r}; the nearest names: {', '.join(near)}")
        return value

    # Fields are checked in their order, so the one that each of these looks at is known to be good, or absent.

    @field_validator("tokens_per_batch")
    @classmethod
    def _one_size(cls, value: int | None, info: ValidationInfo) -> int | None:
        batch_size = info.data.get("batch_size")
        if value is not None and batch_size is not None:
            raise ValueError(f"{value}, and batch_size {batch_size}: they are two ways to say the same; give one")
        return value

    @field_validator("cache")
    @classmethod
    def _keeping(cls, value: bool, info: ValidationInfo) -> bool:
        loader = info.data.get("loader")
        if value and loader is not None and loader not in KEEPING:
            raise ValueError(
                f"the loader {loader} reads one file that the system keeps in memory already; leave cache out, or take "
                f"one of {', '.join(KEEPING)}"
            )
        return value


def configuration_problems(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Lists problems of keyword arguments of ``make_workload``: key and sentence; empty where all fit."""
    try:
        Configuration.model_validate(dict(config))
    except ValidationError as error:
        return [_problem(problem) for problem in error.errors()]
    return []


def _problem(problem: Any) -> tuple[str, str]:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, Configuration.model_fields, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(Configuration.model_fields)}"
        return key, f"the bundled workload has no such argument; {hint}"
    if problem["type"] == "value_error":  # one of the sentences above
        return key, problem["msg"].removeprefix("Value error, ")
    return key, f"{problem['msg']}, got {problem['input']!r}"
