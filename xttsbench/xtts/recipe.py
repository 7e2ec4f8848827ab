"""A training recipe: YAML into a frozen model, with every error named by file and key at once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Self

import yaml
from pydantic import Field, ValidationError, model_validator

from xttsbench.errors import InvalidInputError
from xttsbench.records.base import Record
from xttsbench.xtts.features import FeatureSettings


class ModelSettings(Record):
    """The decoder's sizes."""

    d_model: int = Field(gt=0)
    layers: int = Field(gt=0)
    heads: int = Field(gt=0)
    feed_forward: int = Field(gt=0)
    prenet: tuple[int, ...] = Field(min_length=1)
    """Units of the layers between a mel frame and the decoder."""
    prenet_dropout: float = Field(ge=0, lt=1)
    frames_per_step: int = Field(gt=0)
    """Mel frames that one step of the decoder reads and predicts."""
    mel_mean: float
    mel_std: float = Field(gt=0)
    """Log-mels are shifted and scaled by these to about unit size."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.d_model % self.heads or self.d_model % 2:
            raise ValueError(f"d_model must be even and a multiple of heads, got {self.d_model} and {self.heads}")
        return self


class BatchSettings(Record):
    """How clips are gathered."""

    batch_size: int = Field(gt=0)
    frame_edges: tuple[int, ...] = Field(min_length=1)
    """Edges of the length buckets in mel frames, rising."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if self.frame_edges[0] <= 0 or any(low >= high for low, high in pairwise(self.frame_edges)):
            raise ValueError(f"frame_edges must be positive and rise, got {list(self.frame_edges)}")
        return self


class OptimizerSettings(Record):
    """Adam's settings."""

    learning_rate: float = Field(gt=0)


class Recipe(Record):
    """Everything that determines a training run but the data."""

    name: str
    description: str
    features: FeatureSettings
    model: ModelSettings
    batches: BatchSettings
    optimizer: OptimizerSettings

    @model_validator(mode="after")
    def _whole_steps(self) -> Self:
        ragged = [edge for edge in self.batches.frame_edges if edge % self.model.frames_per_step]
        if ragged:
            raise ValueError(
                f"batches.frame_edges must be multiples of model.frames_per_step ({self.model.frames_per_step}), "
                f"got {ragged}"
            )
        return self


def load_recipe(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
        InvalidInputError: the file is missing or is not YAML, or keys are missing, unknown or out of range; the
            message lists all of them with the values received.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInputError(f"{path}: not a readable recipe: {error}") from error
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'the file'}: {problem['msg']}"
            + ("" if problem["type"] in {"missing", "value_error"} else f", got {problem['input']!r}")
            for problem in error.errors()
        )
        raise InvalidInputError(f"{path}: {problems}") from error
