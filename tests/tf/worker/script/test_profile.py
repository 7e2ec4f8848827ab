"""A profile of a script's own steps, once enough of them were measured; what is timed is what it was without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        pytest.param("fit.py", ("3", "60", "1", "compiled"), marks=pytest.mark.slow),
        ("mirrored.py", ("python",)),
    ],
)
def test_steps_of_the_script_are_profiled_and_not_timed(
    watched: Callable[..., Any], tmp_path, script: str, arguments: tuple[str, ...]
) -> None:
    ran = watched(script, *arguments, profile_dir=str(tmp_path / "profile"), steps=20, window_s=0.4)
    profile = ran.part("profile")
    assert list(tmp_path.glob("profile/plugins/profile/*/*.xplane.pb"))
    assert 5 <= profile["steps"] <= 20
    gpu = profile["gpu"]
    assert sum(gpu["host_s"].values()) == pytest.approx(gpu["step_s"])
    assert gpu["host_s"]["input"] > 0.001  # the pipeline sleeps 8 ms for each batch, beside a step of 5 at most
    began_ns, ended_ns = gpu["step_starts_ns"][0], gpu["step_ends_ns"][-1]
    assert not [start for start in ran.column("as_is", "start_ns") if began_ns < start < ended_ns]


def test_a_loop_inside_a_function_has_none_and_says_why(watched: Callable[..., Any], tmp_path) -> None:
    ran = watched("in_function.py", "next", "60", profile_dir=str(tmp_path / "profile"))
    assert "inside a tf.function" in ran.part("profile")["unmeasured"]["profile"]
    assert not (tmp_path / "profile").exists()
