"""When a script may be run again to verify its fixes, and what is known of it then."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.conftest import run_plan
from tests.unit.evidence.made import make_evidence
from xttsbench.planning import Job
from xttsbench.records.code import ScriptData, ScriptRun
from xttsbench.records.fix import Patch
from xttsbench.records.plan import RunPlan
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.optimize import again, step_place, verify_fixes, why_not_again
from xttsbench.workflows.optimize.trials import copies

JOB = Job(target="m:f", kwargs={}, emulated_ms=(5.0,), steps=100, window_s=2.0, seed=0)

SEEN = ScriptRun(
    data=ScriptData(kind=2, begun=3), trains=True, iterations=("next()",), step_function="step (/a/t.py:7)"
)


def plan(kind: str = "optimize", *, repeat: bool = False) -> RunPlan:
    return run_plan(kind=kind, repeat=repeat)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"wrote": ("/a/ckpt",)}, None),
        ({"not_redirected": "no namespaces"}, None),
        ({"wrote": ("/a/ckpt",), "not_redirected": "no namespaces"}, "wrote /a/ckpt, and it cannot be kept from that"),
        ({"wrote": tuple("abcde"), "not_redirected": "no"}, "wrote a, b, c and 2 more"),
        ({"wrote": ("/a", "/x"), "uncovered": ("/x",)}, "wrote /x, which cannot be kept in memory"),
        ({"contacted": ("10.0.0.1:443",)}, "connected to 10.0.0.1:443"),
        ({"data": None}, "fed its training loop from no tf.data.Dataset"),
    ],
)
def test_a_script_is_run_again_unless_that_would_do_something_to_others(
    changes: dict[str, object], said: str | None
) -> None:
    script = SEEN.model_copy(update=changes)
    why = why_not_again(plan(), script)
    assert (why is None) if said is None else (why is not None and said in why)
    if said is not None and script.data is not None:
        assert why is not None
        assert "--repeat" in why
        assert why_not_again(plan(repeat=True), script) is None


def test_a_diagnosis_runs_a_script_once_unless_it_may_be_repeated() -> None:
    assert "--repeat" in (why_not_again(plan("diagnose"), SEEN) or "")
    assert why_not_again(plan("diagnose", repeat=True), SEEN) is None


def test_what_trials_know_of_a_script_is_what_its_run_showed(tmp_path: Path) -> None:
    known = again(SEEN, tmp_path)
    assert known is not None
    assert (known.data, known.trains, known.in_graph) == (ScriptData(kind=2, begun=3), True, False)
    assert (known.step, known.redirected, known.directory) == ("step (/a/t.py:7)", True, str(tmp_path))
    place = step_place(SEEN, "/a/main.py")
    assert place is not None
    assert (place.file, place.line) == ("/a/t.py", 7)
    written_out = step_place(SEEN.model_copy(update={"step_function": None}), "/a/main.py")
    assert written_out is not None
    assert (written_out.file, written_out.line) == ("/a/main.py", None)
    assert again(SEEN.model_copy(update={"data": None}), tmp_path) is None
    elsewhere = again(SEEN.model_copy(update={"not_redirected": "no"}), tmp_path)
    assert elsewhere is not None
    assert not elsewhere.redirected


def test_a_keras_model_has_no_function_whose_source_is_changed(tmp_path: Path) -> None:
    script = SEEN.model_copy(update={"iterations": ("fit",)})
    known = again(script, tmp_path)
    assert known is not None
    assert (known.step, step_place(script, "/a/main.py")) == (None, None)


@pytest.mark.parametrize("redact", [False, True])
def test_copies_of_the_source_are_not_left_where_paths_are_left_out(build, monkeypatch, tmp_path, redact) -> None:
    session = SimpleNamespace(trials=[build.ladder()], spent_s=0.0)
    patch = Patch(edits=(), files={"/home/ada/data.py": "# of ada\n"}, diff="")

    def verified(work) -> None:
        assert Path(copies(work.directory, patch)["/home/ada/data.py"]).read_text() == "# of ada\n"

    monkeypatch.setattr("xttsbench.workflows.optimize.verify", verified)
    monkeypatch.setattr("xttsbench.workflows.optimize.proposals", lambda *_, **__: [])
    run = Recorded(tmp_path, run_plan(kind="optimize", redact=redact), {})
    verify_fixes(run, JOB, session, make_evidence("input"), until_s=99.0)
    assert [path.name for path in tmp_path.rglob("*.py")] == ([] if redact else ["0-data.py"])
