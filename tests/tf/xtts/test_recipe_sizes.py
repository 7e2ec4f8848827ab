"""The shipped recipes' models have the numbers of parameters that they are described with."""

from __future__ import annotations

import re

import pytest

from xttsbench.shipped import shipped
from xttsbench.xtts.model import SpeechModel
from xttsbench.xtts.recipe import load_recipe
from xttsbench.xtts.text import VOCABULARY


@pytest.mark.parametrize(("name", "millions"), [("tiny", 0.55), ("small", 7.0), ("base", 51.0)])
def test_parameters(name: str, millions: float) -> None:
    path = shipped("training", name)
    recipe = load_recipe(path)
    model = SpeechModel(recipe.model, recipe.features.n_mels, VOCABULARY, seed=0)
    count = sum(int(variable.shape.num_elements()) for variable in (weight.value for weight in model.weights))
    assert count == pytest.approx(1e6 * millions, rel=0.03)
    said = re.search(r"^model: # ([0-9.]+) million parameters$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert said is not None
    assert float(said[1]) == millions
