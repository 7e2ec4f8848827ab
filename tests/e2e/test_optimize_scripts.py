"""``xttsbench optimize`` on scripts: mended in their own loop, left alone where that would do harm."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.parent import ON_ONE_HELPER, ROOT, python
from tests.e2e.test_optimize import Ran, mended
from tests.patching import apply_patch
from tests.scripts import why_nothing_is_kept
from xttsbench.execution.journal import read_trials

pytestmark = pytest.mark.measured

SCRIPTS = ROOT / "tests" / "targets" / "scripts"
redirects = pytest.mark.skipif(why_nothing_is_kept() is not None, reason="no namespaces are to be had here")


class Script(Ran):
    @property
    def patched(self) -> Path:
        """The script, with the patch of the run in it."""
        (script,) = self.out.parent.glob("*.py")
        return self.out.parent / "patched" / script.name


def optimized(script: str, folder: Path, *arguments: str, budget_s: int = 120) -> Script:
    """Run the command on a copy of a script, in its directory, as a user would."""
    shutil.copy(SCRIPTS / script, folder)
    budget_s *= 2 if folder.name == "again" else 1  # a second try has more time: the machine may be a slow one
    options = ("--json", "--out", "run", "--budget", str(budget_s))
    done = python("-c", ON_ONE_HELPER, "optimize", script, *options, "--", *arguments, cwd=folder, timeout_s=500)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert (folder / script).read_bytes() == (SCRIPTS / script).read_bytes(), "the user's script was touched"
    return Script(done.returncode, json.loads(done.stdout), done.stderr, folder / "run")


def proved(ran: Script) -> dict[str, Any]:
    """What is proposed: faster beyond doubt, with the same data, by a patch that was run; it is applied to a copy."""
    chosen = mended(ran, 1.0)
    ran.patched.parent.mkdir()
    shutil.copy(ran.out.parent / ran.patched.name, ran.patched)
    apply_patch((ran.out / "patch.diff").read_text(encoding="utf-8"), ran.patched.parent)
    return chosen


def losses_before_and_after(ran: Script) -> Iterator[list[float]]:
    """Losses that the user's script writes, and those that the patched copy writes."""
    for folder in (ran.out.parent, ran.patched.parent):
        done = python(ran.patched.name, "own.txt", cwd=folder)
        assert done.returncode == 0, done.stderr
        yield [float(line.split()[-1]) for line in (folder / "own.txt").read_text().splitlines()]


@redirects
def test_input_and_step_of_a_script_that_writes_are_mended_and_what_it_wrote_stays(tmp_path: Path) -> None:
    ran = optimized("writes.py", tmp_path, "written", "3")
    chosen = proved(ran)
    kinds = {part.partition(":")[0].partition("@")[0] for part in chosen["fixes"]}
    assert "step" in kinds
    assert kinds & {"cache", "parallel-map", "processes", "thread-pool", "native"}
    assert "12 variables" in chosen["semantics"]["sentence"]
    assert not (tmp_path / "written").exists(), "it ran, and wrote"
    assert "the script's writes were kept in memory and are gone" in ran.err
    assert "    @tf.function\n    def train_step" in ran.patched.read_text()
    done = python("writes.py", "own", "1", cwd=ran.patched.parent)
    assert done.returncode == 0, done.stderr
    assert (ran.patched.parent / "own" / "log.txt").is_file()


@pytest.mark.slow
@redirects
def test_a_step_that_is_written_out_in_the_loop_becomes_a_function_that_is_compiled(tmp_path: Path) -> None:
    ran = optimized("written_out.py", tmp_path, "losses.txt")
    chosen = proved(ran)
    assert chosen["fixes"][-1].startswith("step:")
    assert "def train_step(inputs, targets):" in ran.patched.read_text()
    ours, theirs = losses_before_and_after(ran)
    assert ours == pytest.approx(theirs, rel=1e-2)


@pytest.mark.slow
@redirects
def test_a_step_that_draws_random_numbers_is_compared_on_the_same_ones(tmp_path: Path) -> None:
    ran = optimized("latent.py", tmp_path, "losses.txt")
    assert proved(ran)["fixes"] == ["step:graph"]
    assert (done := python("latent.py", "own.txt", cwd=ran.patched.parent)).returncode == 0, done.stderr


@pytest.mark.slow
@redirects
def test_a_step_that_is_traced_anew_for_each_number_is_traced_once(tmp_path: Path) -> None:
    ran = optimized("numbered.py", tmp_path, "loss.txt")
    assert proved(ran)["fixes"] == ["step:traced-once"]
    assert "train_step(batch, tf.constant(number, tf.float32))" in ran.patched.read_text()
    ours, theirs = losses_before_and_after(ran)
    assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments"),
    [("custom_loop.py", ("3", "60")), ("fit.py", ("3", "60", "1")), ("mirrored.py", ("python",))],
)
def test_the_input_of_a_compiled_loop_is_mended(script: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    chosen = proved(optimized(script, tmp_path, *arguments))
    assert chosen["semantics"]["how"] == "identical"
    assert not any(part.startswith("step:") for part in chosen["fixes"])


@pytest.mark.slow
def test_a_script_whose_step_is_the_work_is_left_alone(tmp_path: Path) -> None:
    ran = optimized("computes.py", tmp_path)
    assert ran.accepted == []
    assert ran.report["verdict"]["bottleneck"] != "input"
    said = ("There is nothing here that a fix", "No fix was accepted", "Nothing was tried")
    assert ran.err.strip().splitlines()[-1].startswith(said)
    assert not (ran.out / "patch.diff").exists()


def test_a_script_whose_data_would_be_others_is_left_alone(tmp_path: Path) -> None:
    ran = optimized("counts.py", tmp_path)
    assert ran.accepted == []
    assert "arm" not in {trial.spec.kind for trial in read_trials(ran.out)}, "timed, though it may not be"
    tried = [fix for fix in ran.report["fixes"] if "equivalent" in fix["semantics"]]
    assert tried
    assert all(fix["semantics"]["equivalent"] is not True for fix in tried)
    assert any("numbered" in fix["why"] for fix in tried)
    assert "No fix was accepted" in ran.err


@redirects
@pytest.mark.slow
def test_a_py_dataset_that_shuffles_between_epochs_is_opened_and_no_cache_is_put_behind_it(tmp_path: Path) -> None:
    ran = optimized("py_dataset.py", tmp_path, budget_s=80)
    chosen = ran.chosen
    assert any(part.startswith("open-generator") for part in chosen["fixes"])
    assert (chosen["outcome"], chosen["semantics"]["how"]) == ("accepted", "identical")
    assert chosen["verified_speedup"]["low"] > 1.2  # 10 ms of waiting for each batch
    cached = [fix for fix in ran.report["fixes"] if any(part.startswith("cache@") for part in fix["fixes"])]
    assert all(fix["outcome"] != "accepted" for fix in cached)
    assert "on_epoch_end" in " ".join(fix["why"] for fix in cached)


@redirects
@pytest.mark.slow
def test_batches_of_a_loop_s_own_are_made_ahead_by_a_dataset_around_them(tmp_path: Path) -> None:
    chosen = proved(optimized("own_loops.py", tmp_path, "plain", budget_s=200))
    assert chosen["fixes"] == ["dataset"]
    assert "+batches_ahead = tf.data.Dataset.from_generator(lambda: clips, output_sig" in chosen["patch"]["diff"]
    assert "+    for x, y in batches_ahead.as_numpy_iterator():" in chosen["patch"]["diff"]


@redirects
@pytest.mark.slow
@pytest.mark.parametrize(("script", "why"), [("own_loops.py", "'weights'"), ("replayed.py", "The name kept")])
def test_a_loader_that_hangs_on_the_step_is_not_run_ahead(tmp_path: Path, script: str, why: str) -> None:
    ran = optimized(script, tmp_path, "weights", budget_s=120)
    assert not any(fix["chosen"] for fix in ran.report["fixes"])
    (fix,) = [fix for fix in ran.report["fixes"] if fix["fixes"] == ["dataset"]]
    assert fix["outcome"] == "rejected"
    assert why in fix["why"]
    assert f"{script}:" in fix["why"]
