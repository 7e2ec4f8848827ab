"""Recipes: every shipped one is read, and every error is named with its file and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from xttsbench.errors import InvalidInputError
from xttsbench.shipped import available, shipped
from xttsbench.xtts.recipe import load_recipe


def altered(tmp_path: Path, *changes: tuple[str, Any]) -> Path:
    """Write the tiny recipe with some keys set, or removed where the value is None."""
    content = yaml.safe_load(shipped("training", "tiny").read_text(encoding="utf-8"))
    for key, value in changes:
        *parents, last = key.split(".")
        place = content
        for parent in parents:
            place = place[parent]
        if value is None:
            del place[last]
        else:
            place[last] = value
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", available("training"))
def test_every_shipped_recipe_is_valid(name: str) -> None:
    assert load_recipe(shipped("training", name)).name == name


@pytest.mark.parametrize("name", ["small", "base"])
def test_the_larger_recipes_take_ljspeech_whole(name: str) -> None:
    """Its clips last 10.1 s and its texts have 190 characters at most; batches hold many even of the longest."""
    recipe = load_recipe(shipped("training", name))
    batches, training = recipe.batches, recipe.training
    assert recipe.features.frames(int(10.1 * 22_050)) <= batches.frame_edges[-1]
    assert batches.text_edges[-1] >= 190
    assert batches.tokens_per_batch
    assert batches.rows(batches.frame_edges[-1]) >= 16
    assert training.schedule.warmup_steps
    assert training.ema_decay
    assert recipe.optimizer.clip_norm == 1


def test_all_errors_come_at_once_with_key_and_value(tmp_path: Path) -> None:
    path = altered(
        tmp_path,
        ("model.layers", 0),
        ("model.colour", "red"),
        ("features.n_mels", None),
        ("optimizer.learning_rate", "fast"),
        ("optimizer.clip_norm", 0),
        ("loss.guided_sigma", -1),
    )
    with pytest.raises(InvalidInputError) as caught:
        load_recipe(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "model.layers: Input should be greater than 0, got 0" in message
    assert "model.colour: Extra inputs are not permitted, got 'red'" in message
    assert "features.n_mels: Field required" in message
    assert "optimizer.learning_rate: " in message
    assert "optimizer.clip_norm: Input should be greater than 0, got 0" in message
    assert "loss.guided_sigma: Input should be greater than 0, got -1" in message
    assert "got 'fast'" in message


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model.heads", 5, "model: .*multiple of heads, got 96 and 5"),
        ("model.guided_layers", 4, r"model: .*at most layers \(3\), got 4"),
        ("model.guided_heads", 4, r"model: .*fewer than heads \(4\), .*got 4"),
        ("batches.frame_edges", [384, 256], r"batches: .*rise, got \[384, 256\]"),
        ("batches.frame_edges", [256, 386], r"the file: .*multiples of model.frames_per_step \(4\), got \[386\]"),
    ],
)
def test_values_that_contradict_each_other(tmp_path: Path, key: str, value: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        load_recipe(altered(tmp_path, (key, value)))


def test_guided_heads_do_not_matter_without_guided_layers(tmp_path: Path) -> None:
    recipe = load_recipe(altered(tmp_path, ("model.guided_layers", 0), ("model.guided_heads", 4)))
    assert recipe.model.guided_layers == 0


@pytest.mark.parametrize("text", ["a: [", "just text", ""])
def test_what_is_no_recipe_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"bad\.yaml: "):
        load_recipe(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"none\.yaml: not a readable recipe"):
        load_recipe(tmp_path / "none.yaml")
