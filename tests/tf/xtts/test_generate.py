"""Free-running speech: what is computed step by step is what the whole model says of the same frames."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.shipped import shipped
from xttsbench.xtts.data.metadata import VOCABULARY
from xttsbench.xtts.model.generator import LONGEST_CHARACTER_S, LONGEST_PAUSE_S, Generator, longest
from xttsbench.xtts.model.speech_model import Prediction, SpeechModel, unscale_mel
from xttsbench.xtts.recipe import ModelSettings, load_recipe

TINY = load_recipe(shipped("training", "tiny")).model
SMALL = TINY.model_copy(update={"d_model": 16, "feed_forward": 24, "prenet": (12, 12), "latents": 3})
N_MELS, GROUP = 5, SMALL.frames_per_step
STEP_S = 0.125  # 2 steps for each character and 8 more at most
LENGTHS = (7, 3, 5)
TEXTS = [np.random.default_rng(n).integers(1, VOCABULARY, n).astype(np.int32) for n in LENGTHS]
REFERENCES = np.random.default_rng(0).normal(-5, 2, (3, 3 * GROUP, N_MELS)).astype(np.float32)


def build(settings: ModelSettings = SMALL, stop_bias: float = -100.0) -> SpeechModel:
    made = SpeechModel(settings, N_MELS, VOCABULARY, seed=3, dtype="float32")
    made.heads.stop_bias.assign([stop_bias])
    return made


def shown_its_own(made: SpeechModel, mels: list[np.ndarray]) -> Prediction:
    """Return what the whole model predicts where it is shown the frames that it made."""
    text = np.zeros((len(TEXTS), max(LENGTHS)), np.int32)
    mel = np.full((len(TEXTS), max(map(len, mels)), N_MELS), -11.5, np.float32)
    for row, (ids, frames) in enumerate(zip(TEXTS, mels, strict=True)):
        text[row, : len(ids)], mel[row, : len(frames)] = ids, frames
    return made({"text": text, "text_length": np.array(LENGTHS), "mel": mel, "reference": REFERENCES})


@pytest.mark.parametrize(
    "settings",
    [
        SMALL,
        SMALL.model_copy(update={"guided_layers": 0}),
        SMALL.model_copy(update={"guided_layers": 3, "guided_heads": 1, "layers": 3, "latents": 1}),
    ],
    ids=["guided", "unguided", "all-guided"],
)
def test_each_step_is_what_the_whole_model_says_of_the_frames_before_it(settings: ModelSettings) -> None:
    made = build(settings)
    generated = Generator(made, STEP_S)(TEXTS, REFERENCES)
    prediction = shown_its_own(made, generated.mels)
    expected = unscale_mel(prediction.scaled_mel, settings).numpy()
    for row, mel in enumerate(generated.mels):
        assert len(mel) == GROUP * (2 * LENGTHS[row] + 8)
        np.testing.assert_allclose(mel, expected[row, : len(mel)], atol=1e-4)
        # And the frames matter: the model does not say the same thing at each step.
        assert np.abs(mel[GROUP:] - mel[:-GROUP]).max() > 1e-2
    assert len(generated.attention) == (3 if settings.guided_layers else 0)
    for row, weights in enumerate(generated.attention):
        steps = len(generated.mels[row]) // GROUP
        whole = prediction.attention[-1].numpy().mean(0)[row, :steps, settings.latents :]
        assert weights.shape == (steps, LENGTHS[row])
        np.testing.assert_allclose(weights, whole[:, : LENGTHS[row]], atol=1e-5)
        np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)


def test_speech_ends_with_the_first_step_whose_stop_is_more_likely_than_not() -> None:
    endless = build()
    mels = Generator(endless, STEP_S)(TEXTS, REFERENCES).mels
    logits = shown_its_own(endless, mels).stop_logits.numpy() + 100
    # A bias between the logits of different steps, so that rows end at different times, and one perhaps never.
    inner = np.concatenate([row[2 : len(mel) // GROUP] for row, mel in zip(logits, mels, strict=True)])
    bias = -float(np.median([row[: len(mel) // GROUP].max() for row, mel in zip(logits, mels, strict=True)])) + 1e-3
    assert inner.size
    generated = Generator(build(stop_bias=bias), STEP_S)(TEXTS, REFERENCES)
    for row, mel in enumerate(generated.mels):
        limit = 2 * LENGTHS[row] + 8
        over = np.flatnonzero(logits[row, :limit] + bias > 0)
        assert generated.stopped[row] == bool(len(over))
        assert len(mel) == GROUP * (over[0] + 1 if len(over) else limit)
    assert generated.stopped.sum() > 0


def test_rows_do_not_depend_on_one_another() -> None:
    generator = Generator(build(), STEP_S)
    together = generator(TEXTS, REFERENCES)
    for row, text in enumerate(TEXTS):
        alone = generator([text], REFERENCES[row : row + 1])
        np.testing.assert_allclose(alone.mels[0], together.mels[row], atol=1e-4)
    assert generator._run.experimental_get_tracing_count() == 1


def test_the_longest_speech_is_derived_from_the_text() -> None:
    assert longest(np.array([1, 10], np.int32), 0.05).tolist() == [
        round((LONGEST_CHARACTER_S + LONGEST_PAUSE_S) / 0.05),
        round((10 * LONGEST_CHARACTER_S + LONGEST_PAUSE_S) / 0.05),
    ]


def test_a_model_that_computes_in_sixteen_bits_speaks_too() -> None:
    made = SpeechModel(SMALL, N_MELS, VOCABULARY, seed=3, dtype="mixed_bfloat16")
    made.heads.stop_bias.assign([-100.0])
    generated = Generator(made, STEP_S)(TEXTS, REFERENCES)
    whole = Generator(build(), STEP_S)(TEXTS, REFERENCES)
    assert [mel.dtype for mel in generated.mels] == [np.float32] * 3
    # The first step has no rounding of earlier ones in it.
    np.testing.assert_allclose(generated.mels[0][:GROUP], whole.mels[0][:GROUP], atol=0.2)
    assert tf.reduce_all(tf.math.is_finite(generated.mels[0]))
