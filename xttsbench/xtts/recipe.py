"""A training recipe: YAML into a frozen model, with every error named by file and key at once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from xttsbench import limited_yaml
from xttsbench.errors import InvalidInputError, first_line
from xttsbench.inputs import read_text
from xttsbench.records.base import Record
from xttsbench.xtts.features import FeatureSettings


class ScheduleSettings(Record):
    """The learning rate over the steps, as shares of ``optimizer.learning_rate``, its highest value."""

    kind: Literal["constant", "noam", "cosine"] = "constant"
    """After the warm-up: the same; falling with the root of the step (Vaswani et al., 2017); half a cosine
    (Loshchilov and Hutter, 2017)."""
    warmup_steps: int = Field(0, ge=0)
    """Steps in which it rises from 0 along a straight line."""
    final_share: float = Field(0.0, ge=0, le=1)
    """Share of the highest rate at which the cosine ends."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kind == "noam" and not self.warmup_steps:
            raise ValueError("noam needs warmup_steps of 1 or more, for its highest rate is at their end")
        return self


class HealthSettings(Record):
    """When losses and gradients that are not finite, and a loss that blows up, end a run.

    A step whose gradient is not finite is left out by all replicas. After too many in a row, or where the mean loss of
    an interval is far above the best one, the run ends with an error.
    """

    skipped_in_a_row: int = Field(10, gt=0)
    blow_up: float = Field(4.0, gt=1)
    """An interval's mean loss over the lowest one so far that counts as a blow-up."""


class TrainingSettings(Record):
    """A training run but for its model, batches and data."""

    steps: int = Field(1200, gt=0)
    """Updates of the weights, those left out included."""
    accumulation: int = Field(1, gt=0)
    """Batches of a replica whose gradients make one update."""
    schedule: ScheduleSettings = ScheduleSettings()
    ema_decay: float | None = Field(None, gt=0, lt=1)
    """Decay of an exponential moving average of the weights, which is evaluated in their place."""
    gradient_checkpointing: bool = False
    """Compute the decoder's blocks again in the backward pass instead of keeping what they computed."""
    log_every: int = Field(20, gt=0)
    """Steps of an interval: losses are fetched from the device at its end and not before."""
    evaluate_every: int = Field(200, gt=0)
    checkpoint_every: int = Field(200, gt=0)
    keep_checkpoints: int = Field(3, gt=0)
    """Newest ones that are kept, beside the best."""
    health: HealthSettings = HealthSettings()


class ModelSettings(Record):
    """The model's sizes; :class:`xttsbench.xtts.model.speech_model.SpeechModel` follows them."""

    d_model: int = Field(gt=0)
    layers: int = Field(gt=0)
    """Blocks of the decoder."""
    heads: int = Field(gt=0)
    feed_forward: int = Field(gt=0)
    """Units between the two products of a block's feed-forward part."""
    conditioning_layers: int = Field(ge=0)
    """Blocks of the encoder over the reference."""
    perceiver_layers: int = Field(gt=0)
    """Blocks in which the latents read the encoded reference."""
    latents: int = Field(gt=0)
    """Positions that the reference takes in the decoder's sequence."""
    prenet: tuple[int, ...] = Field(min_length=1)
    """Units of the layers between a group of mel frames and the decoder."""
    prenet_dropout: float = Field(ge=0, lt=1)
    frames_per_step: int = Field(gt=0)
    """Mel frames that one step of the decoder reads and predicts."""
    guided_layers: int = Field(ge=0)
    """Last blocks of the decoder in which some heads lead from speech to text alone."""
    guided_heads: int = Field(gt=0)
    """Guided heads in each of these blocks."""
    mel_mean: float
    mel_std: float = Field(gt=0)
    """Log-mels are shifted and scaled by these to about unit size."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.d_model % self.heads or self.d_model % 2:
            raise ValueError(f"d_model must be even and a multiple of heads, got {self.d_model} and {self.heads}")
        if self.guided_layers > self.layers:
            raise ValueError(f"guided_layers must be at most layers ({self.layers}), got {self.guided_layers}")
        if self.guided_layers and self.guided_heads >= self.heads:
            raise ValueError(
                f"guided_heads must be fewer than heads ({self.heads}), for some must see the speech, "
                f"got {self.guided_heads}"
            )
        return self


class LossSettings(Record):
    """Weights of the loss's parts; the mel's is 1."""

    stop_weight: float = Field(ge=0)
    stop_positive_weight: float = Field(gt=0)
    """One step of a clip is its last: without a weight, never stopping would be a good answer."""
    guided_weight: float = Field(ge=0)
    guided_sigma: float = Field(gt=0)
    """Width of the diagonal of text and speech, in parts of their lengths."""


class BatchSettings(Record):
    """Settings that gather clips into batches; :func:`xttsbench.xtts.data.batches.plan` follows them."""

    batch_size: int | None = Field(default=None, gt=0)
    """Clips of a batch; ``None`` where ``tokens_per_batch`` decides."""
    tokens_per_batch: int | None = Field(default=None, gt=0)
    """Mel frames of a batch, padding included: a bucket's batches hold this over its edge, and one clip at least."""
    bucketing: bool = True
    """Whether clips share a batch with clips of similar length; if not, all are padded to one edge."""
    frame_edges: tuple[int, ...] = Field(min_length=1)
    """Edges of the length buckets in mel frames, rising."""
    text_edges: tuple[int, ...] = Field(min_length=1)
    """Sizes that texts are padded to, in characters, rising; a bucket has one of them, so one shape."""
    reference_frames: int = Field(default=128, gt=0)
    """Mel frames of the reference, which says how the speaker sounds."""
    too_long: Literal["refuse", "skip"] = "refuse"
    """Treatment of clips that are longer than the last edge, of frames or of text."""
    parts: int = Field(default=1, gt=0)
    """Equal batches that a planned one is the sum of: for each replica, each of those that are accumulated. The trainer
    sets it, not the recipe."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, edges in (("frame_edges", self.frame_edges), ("text_edges", self.text_edges)):
            if edges[0] <= 0 or any(low >= high for low, high in pairwise(edges)):
                raise ValueError(f"{name} must be positive and rise, got {list(edges)}")
        if (self.batch_size is None) == (self.tokens_per_batch is None):
            raise ValueError(
                "either batch_size or tokens_per_batch must be given, "
                f"got {self.batch_size} and {self.tokens_per_batch}"
            )
        return self

    def rows(self, edge: int) -> int:
        """Return how many clips a planned batch holds that is padded to ``edge`` frames, over all its parts."""
        if self.batch_size is not None:
            return self.parts * self.batch_size
        return self.parts * max(1, (self.tokens_per_batch or 0) // edge)


class OptimizerSettings(Record):
    """Adam's settings (Kingma and Ba, 2015), and the clipping of gradients before it."""

    learning_rate: float = Field(gt=0)
    clip_norm: float = Field(gt=0)
    """Greatest joint Euclidean norm of all gradients; larger ones are scaled down together."""
    beta_1: float = Field(default=0.9, ge=0, lt=1)
    beta_2: float = Field(default=0.999, ge=0, lt=1)
    epsilon: float = Field(default=1e-7, gt=0)


class Recipe(Record):
    """Everything that determines a training run but the data."""

    name: str
    description: str
    features: FeatureSettings
    model: ModelSettings
    loss: LossSettings
    batches: BatchSettings
    optimizer: OptimizerSettings
    training: TrainingSettings = TrainingSettings()

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
        content = limited_yaml.content(read_text(path))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise InvalidInputError(f"{path}: not a readable recipe: {reason}") from error
    return recipe_of(content, str(path))


def recipe_of(content: Any, place: str) -> Recipe:
    """Return the recipe that a file's content, or what was changed of it, says.

    The content is as YAML has it; errors call it by its place.

    Raises:
        InvalidInputError: keys are missing, unknown or out of range; the message lists all of them with the values
            received.
    """
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'the file'}: {problem['msg']}"
            + ("" if problem["type"] in {"missing", "value_error"} else f", got {problem['input']!r}")
            for problem in error.errors()
        )
        raise InvalidInputError(f"{place}: {problems}") from error
