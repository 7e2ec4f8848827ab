"""What a careless data set holds, on its way to batches: each is named with what to do, or left out where asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.shipped import available, shipped
from xttsbench.xtts.audio.wav import write_wav
from xttsbench.xtts.data.batches import plan
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.recipe import load_recipe

Read = Callable[[Path], SpeechData]


@pytest.mark.parametrize("name", available("training"))
def test_a_clip_of_ten_minutes_is_named_or_skipped(speech: Path, read: Read, name: str) -> None:
    recipe = load_recipe(shipped("training", name))
    write_wav(speech / "wavs" / "endless.wav", np.zeros(600 * 22_050), 22_050)
    with (speech / "metadata.csv").open("a") as metadata:
        metadata.write("endless|some words\n")
    data = read(speech)
    frames = data.samples // recipe.features.hop_samples
    settings = recipe.batches.model_copy(update={"batch_size": 2, "tokens_per_batch": None})
    of = (frames, data.text_lengths, data.speakers)
    with pytest.raises(InvalidInputError, match=r"clip 'endless' has 51679 mel frames.*896 \(1 of 7.*too_long to skip"):
        plan(*of, settings, seed=0, epoch=0, name=data.id)
    kept = plan(*of, settings.model_copy(update={"too_long": "skip"}), seed=0, epoch=0, name=data.id)
    used = {data.id(int(clip)) for batch in kept for clip in (*batch.clips, *batch.references)}
    assert used == {f"c{number}" for number in range(6)}


def test_a_text_of_a_thousand_characters_is_named_or_skipped(speech: Path, read: Read) -> None:
    path = speech / "metadata.csv"
    path.write_text(path.read_text().replace("c2|some words", f"c2|{'word ' * 200}"))
    recipe, data = load_recipe(shipped("training", "tiny")), read(speech)
    settings = recipe.batches.model_copy(update={"batch_size": 2})
    of = (data.samples // recipe.features.hop_samples, data.text_lengths, data.speakers)
    with pytest.raises(InvalidInputError, match="clip 'c2' has 999 characters, more than the last edge, 256"):
        plan(*of, settings, seed=0, epoch=0, name=data.id)
    kept = plan(*of, settings.model_copy(update={"too_long": "skip"}), seed=0, epoch=0)
    assert 2 not in np.concatenate([[*batch.clips, *batch.references] for batch in kept])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is empty"),
        ("   ", "the text is empty"),
        ("漢字", "no character of '漢字' is among"),
        ("123", "no character of '123'"),
    ],
)
def test_a_text_that_leaves_nothing_to_say_is_named_with_its_line(
    speech: Path, read: Read, text: str, message: str
) -> None:
    path = speech / "metadata.csv"
    path.write_text(path.read_text().replace("c3|some words", f"c3|{text}"), encoding="utf-8")
    with pytest.raises(InvalidInputError) as caught:
        read(speech)
    assert message in str(caught.value)
    assert "metadata.csv:4" in str(caught.value)
    assert "Correct or remove those lines of metadata.csv" in str(caught.value)


def test_characters_outside_the_table_are_left_out_of_a_text(speech: Path, read: Read) -> None:
    path = speech / "metadata.csv"
    path.write_text(path.read_text().replace("c3|some words", "c3|søme 漢字 wörds™ 12"), encoding="utf-8")
    data = read(speech)
    assert data.text_lengths[3] == len(data.text_ids(3)) > 0
    assert data.text_ids(3).min() >= 1
