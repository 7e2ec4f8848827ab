"""Secrets by random names, in arguments and variables: in no file of a run and on no screen, whatever echoes them."""

from __future__ import annotations

import io
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xttsbench
from tests.unit.cli.made import invoke
from tests.unit.records.test_records import made
from xttsbench.cli.output import end
from xttsbench.errors import UsageError
from xttsbench.execution.child import Collected, now_utc
from xttsbench.execution.journal import ROUNDS
from xttsbench.execution.limits import Limits
from xttsbench.records.fix import Optimized, Patch
from xttsbench.records.plan import RunPlan
from xttsbench.records.readings import Readings
from xttsbench.records.training import HistoryLine
from xttsbench.records.trial import TrialSpec
from xttsbench.reporting.page import to_json
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.measure.session import Session
from xttsbench.workflows.runs import Outcome, finish, open_run, read_run, rebuild
from xttsbench.workflows.train import SessionProgress, Silent

MARKER = "Mark3r-0f-a-secret"
WORDS = (
    "api_key",
    "token",
    "password",
    "secret",
    "credential",
    "access-key",
    "private_key",
    "session",
    "cookie",
    "dsn",
)
names = st.builds("{}_{}".format, st.sampled_from(["my", "db", "x9", "hf", "WANDB", "tf"]), st.sampled_from(WORDS))
ways = st.sampled_from(
    ["--{0}={1}", "--{0} {1}", "{0}={1}", "-e {0}={1}", "--url https://me:{1}@host/x", "--{0}={1}:x"]
)


@pytest.fixture(autouse=True)
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xttsbench.reporting.page._write_plots", lambda *_: {})


def plan(arguments: tuple[str, ...], kwargs: dict[str, Any], **more: Any) -> RunPlan:
    command = " ".join(["xttsbench diagnose t.py --", *arguments])
    fields = {"kind": "diagnose", "target": "t.py", "steps": 9, "budget_s": 60.0, "created_utc": now_utc()} | more
    return RunPlan(command=command, arguments=arguments, kwargs=kwargs, **fields)


def echoing(session: Session, spec: TrialSpec, *_: object) -> Any:
    """A trial that says all that it was told, in every way that a target has."""
    told = repr((spec.arguments, spec.kwargs))
    collected = Collected(spec)
    error = {"type": "ValueError", "message": f"ValueError: {told}", "traceback": f'File "{Path.cwd()}/t.py"\n{told}\n'}
    collected.take({"status": "raised", "cause": f"ValueError: {told}", "error": error})
    collected.take({"note": f"noted {told}"})
    collected.take({"part": "script", "value": {"wrote": [told], "unmeasured": {told: told}}})
    return collected.record(started_utc=now_utc(), duration_s=1.0, readings=Readings())


def run_of(asked: RunPlan, out: Path) -> Outcome:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(Session, "_attempt", echoing)
        run = stack.enter_context(open_run(asked, out, "x"))
        spec = TrialSpec(
            trial_id="000", kind="script", target=asked.target, arguments=asked.arguments, kwargs=asked.kwargs
        )
        with run.session(None) as session:
            session.run(spec, Limits(9.0, 9.0))
        assert MARKER in str(session.trials)  # the process itself is told the truth
        session.keep_rounds(session.trials)  # as of trials that take turns
        assert MARKER not in (out / ROUNDS).read_text()
        (out / ROUNDS).unlink()
        return finish(replace(run, trials=session.trials))


def shown(outcome: Outcome, *options: str) -> str:
    """All that a command prints of a run."""

    class Context:
        params = dict.fromkeys(["as_json", "quiet", "browse", "debug"], False) | dict.fromkeys(options, 2)

    with redirect_stdout(io.StringIO()) as out, redirect_stderr(out), pytest.raises(Exception):  # noqa: B017, PT011
        end(outcome, Context())  # type: ignore[arg-type]
    return out.getvalue()


def everything(directory: Path) -> str:
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert {"plan.json", "environment.json", "trials.jsonl", "report.json", "report.md", "report.html"} <= {
        path.name for path in files
    }
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=names, way=ways, variable=names, redact=st.booleans())
def test_a_secret_is_in_no_file_and_on_no_screen(
    tmp_path_factory: pytest.TempPathFactory, name: str, way: str, variable: str, redact: bool
) -> None:
    folder = tmp_path_factory.mktemp("secrets")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv(f"TF_{variable.upper()}", MARKER)
        words = tuple(way.format(name, MARKER).split())
        runs = [plan(words, {}, redact=redact), plan((), {name: MARKER, "of": [{name: [MARKER]}]}, redact=redact)]
        outcomes = [run_of(asked, folder / str(number)) for number, asked in enumerate(runs)]
        again = [rebuild(folder / str(number)) for number in range(2)]
        for outcome in (*outcomes, *again):
            seen = shown(outcome, "verbose") + shown(outcome, "as_json", "debug") + to_json(outcome.report)
            assert MARKER not in seen + str(outcome.message)
            assert "***" in seen
        compared = [invoke("compare", "0", "1", "--across", *way) for way in ([], ["--json"], ["--markdown", "-"])]
        assert MARKER not in "".join(one.output + str(one.exception) for one in compared)
        kept = everything(folder / "0") + everything(folder / "1")
        assert MARKER not in kept
        assert (str(folder) in kept) is not redact


def test_reports_of_earlier_versions_are_shown_without_their_secrets(build: Any, runs: Any, tmp_path: Path) -> None:
    for name in "ab":
        asked, environment, trials = runs["starving"]
        asked = asked.model_copy(update={"created_utc": f"2026-01-0{1 + 'ab'.index(name)}T00:00:00+00:00"})
        held = {"TF_HTTP_PASSWORD": f"{MARKER}-{name}", "TF_API_KEY": MARKER, "TF_NUM_INTEROP_THREADS": "1"}
        before = build.run_directory(tmp_path / name, asked, dict(environment) | {"variables": held}, trials)
        report = rebuild(tmp_path / name).report
        old = to_json(report).replace('"TF_NUM_INTEROP_THREADS": "1"', f'"TF_API_KEY": "{MARKER}-{name}"')
        (tmp_path / name / "report.json").write_text(old)
        assert before is None or MARKER in (before / "environment.json").read_text()
    said = invoke("compare", f"{tmp_path}/a:original", f"{tmp_path}/b:original", "--across", "--markdown", "-")
    assert "B is" in said.output, (said.output, said.exception)
    assert MARKER not in said.output
    for name in "ab":
        assert MARKER not in invoke("report", tmp_path / name, "-vv").output
        assert MARKER not in (tmp_path / name / "report.html").read_text()


def test_redacting_leaves_out_who_and_where_and_the_run_is_read_and_compared(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("getpass.getuser", lambda: "ada_l")
    monkeypatch.setattr("platform.node", lambda: "turing-9.example.org")
    told = ("--corpus", "/data/client/corpus.csv", "--by", "ada_l@turing-9", MARKER)
    run_of(plan(told, {}, redact=True, target="/data/client/t.py"), tmp_path / "run")
    kept = everything(tmp_path / "run")
    for left_out in ("ada_l", "turing-9", "/data", "client", "corpus.csv", MARKER, str(tmp_path)):
        assert left_out not in kept, left_out
    assert "…/t.py" in kept
    for command in (["report", "run"], ["compare", "run", "run", "--across", "--redact"]):
        assert "Traceback" not in invoke(*command).output
    plain = run_of(plan((*told[:-1], "--token", MARKER), {}), tmp_path / "plain")
    assert "/data/client/corpus.csv" in to_json(plain.report)
    assert "client" not in to_json(rebuild(tmp_path / "plain", redact=True).report)


def test_a_patch_is_read_again_though_a_file_is_called_like_a_secret(tmp_path: Path) -> None:
    run = Recorded(tmp_path, plan(("--token", MARKER), {}), {})
    patch = Patch(edits=(), files={"/x/secrets.py": "import a\n"}, diff=f"+ login({MARKER!r})\n")
    kept = run.redaction.kept(patch)
    assert (kept.files, kept.diff) == (patch.files, "+ login('***')\n")


def test_what_a_training_tells_is_without_secrets(tmp_path: Path) -> None:
    run = Recorded(tmp_path, plan(("--token", MARKER), {}), {})
    session = SessionProgress(tmp_path, 1, Silent(), lambda _: None, redaction=run.redaction)  # type: ignore[arg-type, return-value]
    session.told(HistoryLine(session=0, warned=f"refused {MARKER}"))
    assert MARKER not in (tmp_path / "history.jsonl").read_text() + str(session.lines)


def test_a_masked_argument_is_asked_for_before_anything_is_made(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="give the value itself"),
        open_run(plan(("--api-key", "***"), {}), tmp_path / "run", "x"),
    ):
        raise AssertionError
    assert not (tmp_path / "run").exists()


def test_a_plan_with_a_masked_argument_is_not_applied(tmp_path: Path) -> None:
    found = made(Optimized).model_copy(update={"kwargs": {"api_key": "***"}, "run": str(tmp_path)})
    with pytest.raises(UsageError, match=r"api_key: received '\*\*\*'"):
        xttsbench.optimize("m:f", plan=found)


def test_names_that_are_not_utf_8_are_kept_with_a_mark(tmp_path: Path) -> None:
    asked = plan(("caf\udce9", f"--token={MARKER}"), {"k\udce9": "v\udce9"}, target="caf\udce9.py")
    outcome = run_of(asked, tmp_path / "run")
    assert outcome.report.target["name"] == "caf\ufffd.py"
    assert "\udce9" not in shown(outcome, "verbose")
    assert "\udce9" not in everything(tmp_path / "run")
    assert read_run(tmp_path / "run").trials[0].spec.target == "caf\ufffd.py"
    assert rebuild(tmp_path / "run").message == outcome.message
