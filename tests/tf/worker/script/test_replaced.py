"""An emulated accelerator in place of a script's training step: what still runs, how long it waits, what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[3] / "targets" / "scripts" / "replaced.py"
STEPS = 30
WAIT_MS = 12.0


def replaced(watched: Callable[..., Any], how: str, **settings: Any) -> Any:
    settings = {"emulated_ms": (WAIT_MS,), "steps": 4000, "afterwards": False} | settings
    return watched(SCRIPT.name, how, str(STEPS), **settings)


def line_of(text: str) -> int:
    (number,) = [at for at, line in enumerate(SCRIPT.read_text().splitlines(), 1) if text in line]
    return number


def cause(ran: Any) -> str:
    (message,) = [one for one in ran.messages if one.get("status") == "raised"]
    return str(message["cause"])


@pytest.mark.parametrize(
    ("how", "real"),
    [
        ("function", 2),
        ("op_by_op", 2),
        ("written_out", 2),
        ("methods", 2),
        ("strategy", 2),
        ("on_batch", 2),
        ("anew", 6),
    ],
)
def test_the_first_step_of_each_shape_is_real_and_its_values_are_given_again(
    watched: Callable[..., Any], how: str, real: int
) -> None:
    ran = replaced(watched, how)
    steps, count, values = map(int, re.search(r"steps (\d+) ran (\d+) different (\d+)", ran.output).groups())
    assert (steps, count <= real + 1, values <= real + 1) == (STEPS, True, True), ran.output
    timed = ran.column("as_is", "emulated_ns")
    assert len(timed) > STEPS // 3
    assert min(timed) >= WAIT_MS * 1e6
    own = [step - wait for step, wait in zip(ran.column("as_is", "step_ns"), timed, strict=True)]
    assert sorted(own)[len(own) // 2] < 20e6, "a real step takes 50 ms and more"
    assert set(ran.column("as_is", "batch_size")) == {2, 4}
    assert ran.part("script")["trains"]


def test_a_keras_model_takes_its_batches_and_gives_its_first_logs(watched: Callable[..., Any]) -> None:
    ran = replaced(watched, "fit")
    assert f"steps {2 * STEPS} ran 1 " in ran.output
    timed = ran.column("as_is", "emulated_ns")
    assert len(timed) > STEPS
    assert min(timed) >= WAIT_MS * 1e6
    assert len(timed) + len(ran.column("warm_up", "step_ns")) > 2 * STEPS - 12, "some are in windows"


def test_without_an_emulated_accelerator_every_step_runs(watched: Callable[..., Any]) -> None:
    ran = replaced(watched, "written_out", emulated_ms=())
    assert f"steps {STEPS} ran {STEPS} different {STEPS}" in ran.output


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", f"{SCRIPT}:{{}}: compiled(x, y)[0] < 0.001"),
        ("stops", f"{SCRIPT}:{{}}: EarlyStopping"),
        ("library", "gradients are taken op by op at <string>:2"),
        ("shapes", "has the shape of its batch, of which there are more than 40"),
        ("in_graph", "the loop runs inside a tf.function"),
    ],
)
def test_what_cannot_be_replaced_is_refused_with_its_line(watched: Callable[..., Any], how: str, said: str) -> None:
    ran = replaced(watched, how)
    assert said.format(line_of({"raises": "< 0.001", "stops": "EarlyStopping"}.get(how, "in_graph"))) in cause(ran)
    assert "steps" not in ran.output or how == "in_graph"
