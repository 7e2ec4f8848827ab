"""Reading scenarios from text, as the command line does, and what is wrong with them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.scenario.load import load_scenario
from xttsbench.scenario.settings import Scenario
from xttsbench.targets.configuration import configuration_problems
from xttsbench.targets.spec import parse_target


@pytest.fixture(scope="session")
def load():
    """``load(path, **options)``: the scenario, checked as the command line checks it."""

    def read(path: Path, **options: Any) -> Scenario:
        accelerator = partial(parse_accelerator, beside=path.parent)
        told = {"target": parse_target, "accelerator": accelerator, "arguments": configuration_problems} | options
        return load_scenario(path, **told)

    return read


@pytest.fixture
def scenario(load, tmp_path: Path):
    """``scenario(text)``: a scenario of the bundled workload with those lines."""

    def read(text: str, head: str = "name: mine\ntarget: os:getcwd\n", **options: Any) -> Scenario:
        path = tmp_path / "mine.yaml"
        path.write_text(head + text)
        return load(path, **options)

    return read


@pytest.fixture
def problems(scenario):
    """``problems(text)``: what is wrong with it, by place, one line each."""

    def read(*text: str, **options: Any) -> list[str]:
        with pytest.raises(InvalidInputError) as raised:
            scenario(*text, **options)
        message = str(raised.value)
        assert "\n" not in message
        assert "mine.yaml has " in message
        return message.partition(": ")[2].rstrip(".").split("; line ")

    return read
