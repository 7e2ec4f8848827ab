"""Scripts that run unchanged: what is measured of known ones, that nothing changes for them, and that they end.

The known ones take 5 ms to compute and 8 ms to produce with one batch ahead: a wait of 3 ms in steps of 8. Margins are
wide, for a busy machine only ever adds time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.measured
SLOW = pytest.mark.slow
"""Others of its kind are in every run, here or through the command in ``tests/e2e/test_scripts.py``; each takes ten
seconds and more."""


def _known(ran: Any) -> None:
    assert 7.0 < ran.median_ms("as_is", "wall_ns") < 30.0
    assert ran.median_ms("as_is", "step_ns") > 4.5
    assert 0.3 < ran.median_ms("as_is", "wait_ns") < ran.median_ms("as_is", "step_ns") + 6.0


def test_a_custom_loop_is_measured_without_its_validation(watched: Callable[..., Any]) -> None:
    ran = watched("custom_loop.py", "3", "40")
    _known(ran)
    seen = len(ran.column("as_is", "wall_ns")) + len(ran.column("warm_up", "wall_ns"))
    assert 40 < seen <= 120 - 8, "validation steps would be more, steps of the anatomy are in no segment"
    assert set(ran.column("as_is", "batch_size")) == {4}
    assert set(ran.column("as_is", "epoch")) == {0, 1, 2}
    run = ran.part("script")
    assert (run["ended"], run["exit_code"], run["iterations"]) == ("returned", 0, ["next()"])
    assert run["step_function"].startswith("train_step (")
    assert run["datasets"] == 2
    assert ran.part("anatomy")["steps"] >= 1
    assert ran.column("step_only", "wall_ns")
    assert ran.messages[-1] == {"done": True}


@pytest.mark.parametrize("arguments", [("5", "compiled"), pytest.param(("1", "compiled"), marks=SLOW)])
def test_fit_is_measured_batch_by_batch(watched: Callable[..., Any], arguments: tuple[str, str]) -> None:
    ran = watched("fit.py", "2", "60", *arguments)
    _known(ran)
    assert ran.part("script")["iterations"] == ["fit"]
    assert ran.part("script")["steps_per_call"] == int(arguments[0])
    assert set(ran.column("as_is", "batch_size")) == {4}


@pytest.mark.parametrize("arguments", [("5", "compiled"), pytest.param(("1", "eager"), marks=SLOW)])
def test_fit_of_keras_2_is_measured_batch_by_batch(
    watched: Callable[..., Any], arguments: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    ran = watched("fit.py", "2", "60", *arguments)
    assert ran.part("devices")["versions"]["keras"].startswith("2.")
    _known(ran)
    assert ran.part("script")["iterations"] == ["fit"]
    assert ran.part("script")["steps_per_call"] == int(arguments[0])
    assert set(ran.column("as_is", "batch_size")) == {4}
    assert ran.column("step_only", "wall_ns")


@pytest.mark.parametrize("how", ["next", pytest.param("for", marks=SLOW), pytest.param("once", marks=SLOW)])
def test_loops_inside_a_function_are_measured_and_have_no_profile(
    watched: Callable[..., Any], tmp_path: Path, how: str
) -> None:
    ran = watched("in_function.py", how, "60", profile_dir=str(tmp_path / "profile"))
    _known(ran)
    assert len(ran.column("as_is", "wall_ns")) + len(ran.column("warm_up", "wall_ns")) == 120
    assert "inside a tf.function" in ran.part("profile")["unmeasured"]["profile"]
    assert not (tmp_path / "profile").exists()


@pytest.mark.parametrize(
    ("script", "arguments"),
    [pytest.param("fit.py", ("3", "60", "1", "compiled"), marks=SLOW), ("mirrored.py", ("python",))],
)
def test_steps_of_the_script_are_profiled_and_not_timed(
    watched: Callable[..., Any], tmp_path: Path, script: str, arguments: tuple[str, ...]
) -> None:
    ran = watched(script, *arguments, profile_dir=str(tmp_path / "profile"), steps=21, window_s=0.4)
    profile = ran.part("profile")
    assert list(tmp_path.glob("profile/plugins/profile/*/*.xplane.pb"))
    assert 5 <= profile["steps"] <= 20
    gpu = profile["gpu"]
    assert sum(gpu["host_s"].values()) == pytest.approx(gpu["step_s"])
    # The pipeline sleeps 8 ms for each batch, beside a step of 5; one that takes longer has nothing to wait for.
    assert gpu["host_s"]["input"] > 0.001 or gpu["step_s"] > 0.009
    began_ns, ended_ns = gpu["step_starts_ns"][0], gpu["step_ends_ns"][-1]
    assert not [start for start in ran.column("as_is", "start_ns") if began_ns < start < ended_ns]
    _counts_the_clips_of_all_replicas(ran)


def _counts_the_clips_of_all_replicas(ran: Any) -> None:
    assert set(ran.column("as_is", "batch_size")) == {4}
    assert len(ran.column("as_is", "wall_ns")) > 20


@SLOW
@pytest.mark.parametrize("how", ["function", "fit"])
def test_a_distributed_dataset_counts_the_clips_of_all_replicas(watched: Callable[..., Any], how: str) -> None:
    _counts_the_clips_of_all_replicas(watched("mirrored.py", how))


def test_what_comes_behind_the_last_step_is_no_part_of_one(watched: Callable[..., Any]) -> None:
    ran = watched("spins_afterwards.py", "90", afterwards=False)
    profile = ran.part("anatomy")
    assert all(line["function"] != "evaluate" for line in profile["lines"])
    assert profile["step_s"] < 0.5


def test_seeded_losses_are_the_same_to_the_last_bit(watched: Callable[..., Any], bare: Callable[..., str]) -> None:
    losses = bare("plain.py", "losses", "60")
    assert len(losses.split()) == 60
    assert watched("plain.py", "losses", "60", afterwards=False).output == losses


@SLOW
def test_the_seeded_loss_of_fit_is_the_same_to_the_last_bit(
    watched: Callable[..., Any], bare: Callable[..., str]
) -> None:
    loss = bare("fit.py", "2", "20", "1", "compiled")
    assert loss.startswith("loss ")
    assert watched("fit.py", "2", "20", "1", "compiled").output == loss


@pytest.mark.parametrize(
    ("what", "code", "ended", "printed"),
    [
        pytest.param("exit", 3, "exited", "", marks=SLOW),
        ("leave", 4, "exited", ""),
        pytest.param("raise", 1, "raised", "", marks=SLOW),
        pytest.param("spawn", 0, "returned", "squares [1, 4, 9]\n", marks=SLOW),
        ("fork", 0, "returned", "squares [1, 4, 9]\n"),
        pytest.param("fork_and_return", 0, "returned", "", marks=SLOW),
        pytest.param("close", 0, "returned", "", marks=SLOW),
        pytest.param("chdir", 0, "returned", "", marks=SLOW),
        pytest.param("thread", 0, "returned", "", marks=SLOW),
        pytest.param("atexit", 0, "returned", "goodbye\n", marks=SLOW),
    ],
)
def test_whatever_a_script_does_it_ends_as_it_would(
    watched: Callable[..., Any], what: str, code: int, ended: str, printed: str
) -> None:
    ran = watched("plain.py", what, "30", afterwards=what != "fork")
    assert (ran.code, ran.part("script")["ended"], ran.output) == (code, ended, printed)
    assert ran.messages[-1] == {"done": True}
    assert ran.column("as_is", "wall_ns")


def test_a_script_that_would_go_on_is_stopped_and_its_handlers_run(watched: Callable[..., Any]) -> None:
    ran = watched("plain.py", "atexit", "100000", steps=50)
    assert ran.part("script")["ended"] == "stopped"
    assert (ran.code, ran.output) == (0, "goodbye\n")


@pytest.mark.parametrize(
    "what",
    [
        "train_on_batch",
        pytest.param("from_generator", marks=SLOW),
        pytest.param("sequence", marks=SLOW),
        pytest.param("arrays", marks=SLOW),
    ],
)
def test_fit_over_other_data_is_measured_and_stopped(watched: Callable[..., Any], what: str) -> None:
    ran = watched("generator_fit.py", what, steps=50)
    assert ran.part("script")["ended"] == "stopped"
    assert len(ran.column("as_is", "wall_ns")) >= 50
    assert ran.code == 0


@SLOW
def test_a_script_that_swallows_everything_is_ended(watched: Callable[..., Any]) -> None:
    ran = watched("plain.py", "swallow", "60", steps=50)
    assert ran.part("script")["ended"] == "stopped"
    assert ran.messages[-1] == {"done": True}


def test_a_killed_script_keeps_its_rows(watched: Callable[..., Any]) -> None:
    ran = watched("plain.py", "die", "1000")
    assert ran.code == -9
    seen = (
        ran.part("anatomy")["steps"] + 8 + len(ran.column("warm_up", "wall_ns")) + len(ran.column("as_is", "wall_ns"))
    )
    assert seen >= 100 - 25, "half a second of steps of 20 ms"
