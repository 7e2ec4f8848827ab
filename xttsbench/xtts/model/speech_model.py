"""The speech model: latents of a reference, text, and groups of mel frames in one sequence, read by a causal decoder.

One row is ``latents | text | speech``. The position of a group of ``r`` mel frames holds the group *before* it (the
first holds zeros) and predicts the group's own frames and whether speech ends there, so that no step sees what it has
to say. Latents and text are the *prefix*; a latent is seen by all positions.

To speak, the prefix is computed once. After it a step computes one position of each row, whose keys and values are kept
for the steps that follow, so that a step costs the same products as one position of :meth:`SpeechModel.decode` and says
the same: fed with the frames that it made, the model predicts those frames.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from xttsbench.xtts.model.attention import positions, size
from xttsbench.xtts.model.parts import Conditioning, DecoderBlock, Embedding, Heads, Prenet, attached, make_masks
from xttsbench.xtts.recipe import ModelSettings

Batch = dict[str, tf.Tensor]

_PHILOX_BLOCK: Final = 4  # numbers that the generator makes of one value of its counter


class Prediction(NamedTuple):
    """Output of the model for a batch, in float32 also where it computes in sixteen bits."""

    scaled_mel: tf.Tensor
    """``[rows, frames, n_mels]``, in the unit of :func:`scale_mel`."""
    stop_logits: tf.Tensor
    """``[rows, steps]``: that the speech ends within this step's frames."""
    attention: tuple[tf.Tensor, ...]
    """Weights from speech to prefix of each guided layer's guided heads: ``[heads, rows, steps, prefix]``."""


@keras.saving.register_keras_serializable("xttsbench")
class SpeechModel(keras.Model):
    """Text ids, mel frames and a reference's mel frames to predicted mel frames and stop logits.

    Its variables exist at once, and are the same for the same seed.
    """

    def __init__(
        self,
        settings: ModelSettings,
        n_mels: int,
        vocabulary: int,
        *,
        seed: int = 0,
        dtype: Any = None,
        gradient_checkpointing: bool = False,
    ) -> None:
        """Make a model.

        Args:
            settings: sizes.
            n_mels: mels of a frame, at least two.
            vocabulary: ids of the text, 0 among them.
            seed: of the initial weights.
            dtype: a Keras dtype policy or its name; None takes Keras's.
            gradient_checkpointing: compute the decoder's blocks again in the backward pass, in place of keeping all
                that they computed until then.
        """
        # The mels are scaled before they are cast to a shorter type.
        super().__init__(name="speech_model", dtype=dtype, autocast=False)
        rng = np.random.default_rng(seed)
        self.settings, self.n_mels, self.vocabulary, self.seed = settings, n_mels, vocabulary, seed
        self.gradient_checkpointing = gradient_checkpointing
        self.conditioning = Conditioning(settings, n_mels, rng, dtype)
        self.embedding = Embedding(rng, vocabulary, settings.d_model, dtype)
        self.prenet = Prenet(settings, n_mels, rng, dtype)
        self.blocks = attached(
            self,
            [
                DecoderBlock(
                    settings,
                    rng,
                    f"block_{number}",
                    guided=number >= settings.layers - settings.guided_layers,
                    last=number == settings.layers - 1,
                    dtype=dtype,
                )
                for number in range(settings.layers)
            ],
        )
        self.heads = Heads(settings, n_mels, rng, dtype)
        self.built = True

    def call(self, batch: Batch, dropout_bits: tf.Tensor | None = None) -> Prediction:
        """Predict each group of frames from the reference, the text and the groups before it.

        Without the bits of :meth:`draw_dropout` nothing is dropped.
        """
        return self.decode(batch, self.condition(batch["reference"]), dropout_bits)

    def condition(self, reference: tf.Tensor) -> tf.Tensor:
        """Return latents ``[rows, latents, d]`` of log-mels ``[rows, frames, n_mels]``.

        A frame of one value throughout is silence or padding, and is not looked at.
        """
        is_speech = tf.reduce_any(tf.not_equal(reference, reference[..., :1]), -1)
        scaled = tf.cast(scale_mel(reference, self.settings), self.compute_dtype)
        return self.conditioning(scaled, is_speech=is_speech)

    def decode(self, batch: Batch, latents: tf.Tensor, dropout_bits: tf.Tensor | None = None) -> Prediction:
        """Predict each group of frames from the latents, the text and the groups before it.

        Args:
            batch: ``text`` ids ``[rows, characters]`` and ``text_length`` ``[rows]``; ``mel``, log-mels ``[rows,
                frames, n_mels]``, the frames a multiple of ``frames_per_step``.
            latents: what :meth:`condition` gave.
            dropout_bits: as in :meth:`call`.
        """
        settings, dtype = self.settings, self.compute_dtype
        text, mel = batch["text"], batch["mel"]
        rows, characters, group = size(text, 0), size(text, 1), settings.frames_per_step
        steps = size(mel, 1) // group
        prefix = settings.latents + characters

        groups = tf.reshape(scale_mel(mel, settings), [rows, steps, group * self.n_mels])
        before = tf.cast(tf.pad(groups[:, :-1], [[0, 0], [1, 0], [0, 0]]), dtype)
        spoken = self.prenet(tf.reshape(before, [rows * steps, group * self.n_mels]), dropout_bits=dropout_bits)

        d = settings.d_model
        x = tf.concat(
            [
                latents,
                tf.reshape(self.embedding(text), [rows, characters, d]) + positions(characters, d, dtype),
                tf.reshape(spoken, [rows, steps, d]) + positions(steps, d, dtype),
            ],
            axis=1,
        )
        x = tf.reshape(x, [rows * (prefix + steps), d])
        masks = make_masks(batch["text_length"], settings.latents, characters, steps, tf.as_dtype(dtype))
        attention = []
        for block in self.blocks:
            apply = _recomputed(block) if self.gradient_checkpointing else block
            x, weights = apply(x, masks=masks, rows=rows, prefix=prefix, steps=steps)
            if weights is not None:
                attention.append(weights)
        predicted, stop_logits = self.heads(x)
        return Prediction(
            tf.reshape(predicted, [rows, steps * group, self.n_mels]),
            tf.reshape(stop_logits, [rows, steps]),
            tuple(attention),
        )

    def draw_dropout(self, batch: Batch, seed: tf.Tensor, part: int = 0) -> tf.Tensor:
        """Return what decides which units the prenet drops: random integers ``[steps of all rows, units]``.

        Whole integers, since the kernels and XLA agree on those, and apart from :meth:`call`, since XLA would compile
        the generator for each shape. Part ``n`` of equal parts of a batch gets what ``n`` of them before it leave of
        the whole batch's, and draws no more than its own: the numbers of Philox (Salmon et al., 2011) are counted, not
        drawn one after the other. Of the batch the shape of ``mel`` counts; the seed is ``[2]`` integers, and ``part``
        the number of this part of the whole batch.
        """
        steps = size(batch["mel"], 0) * (size(batch["mel"], 1) // self.settings.frames_per_step)
        units = sum(self.settings.prenet)
        blocks = -(-units // _PHILOX_BLOCK)  # of one position
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
        before = tf.cast(part * steps, tf.uint64) * blocks
        drawn = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[steps, blocks * _PHILOX_BLOCK],
            key=key,
            counter=counter + tf.stack([before, tf.zeros_like(before)]),
            alg=tf.random.Algorithm.PHILOX.value,
            dtype=tf.uint32,
        )
        return drawn[:, :units]

    def get_config(self) -> dict[str, Any]:
        """Return what :meth:`from_config` needs to make the model again; the weights are not part of it."""
        return {
            "settings": self.settings.model_dump(mode="json"),
            "n_mels": self.n_mels,
            "vocabulary": self.vocabulary,
            "seed": self.seed,
            "gradient_checkpointing": self.gradient_checkpointing,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return a model of the settings that :meth:`get_config` gave."""
        values = dict(config)
        values["settings"] = ModelSettings.model_validate(values["settings"])
        values["dtype"] = keras.saving.deserialize_keras_object(values["dtype"])
        return cls(**values)


def _recomputed(block: Any) -> Callable[..., tuple[tf.Tensor, tf.Tensor | None]]:
    """Return a block that keeps what it reads, and computes the rest again when its gradient is asked for."""

    def apply(x: tf.Tensor, **others: Any) -> tuple[tf.Tensor, tf.Tensor | None]:
        # It knows tensors alone: no None, and nothing that is named.
        kept = tf.recompute_grad(lambda x: tuple(part for part in block(x, **others) if part is not None))
        tokens, *weights = kept(x)
        return tokens, weights[0] if weights else None

    return apply


def scale_mel(mel: tf.Tensor, settings: ModelSettings) -> tf.Tensor:
    """Return log-mels in the unit of the model: about mean 0 and deviation 1."""
    return (mel - settings.mel_mean) * (1 / settings.mel_std)


def unscale_mel(scaled: tf.Tensor, settings: ModelSettings) -> tf.Tensor:
    """Return the log-mels that :func:`scale_mel` scaled."""
    return scaled * settings.mel_std + settings.mel_mean


def open_spec(n_mels: int) -> dict[str, tf.TensorSpec]:
    """Return what a batch must hold, with open sizes, so that one trace serves all buckets; other keys are left alone.

    Texts as ids and mels are padded to one length; a reference starts in its own clip's mels, or at -1 in another's.
    """
    length, mels = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None, n_mels], tf.float32)
    return {
        "text": tf.TensorSpec([None, None], tf.int32),
        "text_length": length,
        "mel": mels,
        "mel_length": length,
        "reference": mels,
        "reference_start": length,
    }


def use_precision(precision: str) -> str:
    """Set what a precision needs for the whole process, and return the name of the model's dtype policy.

    Variables are float32 in all of them. ``tf32`` is float32 but for the factors of a product on a GPU since Ampere,
    which have ten bits for their digits; ``mixed_bfloat16`` and ``mixed_float16`` are Keras's dtype policies.
    TensorFlow has TF32 on unless it is told otherwise, and a process has it for all of its models or for none: the one
    that was made last decides, also for graphs that were traced before. XLA decides when it compiles.
    """
    tf.config.experimental.enable_tensor_float_32_execution(precision != "float32")
    return "float32" if precision == "tf32" else precision


Floats = npt.NDArray[np.float32]
