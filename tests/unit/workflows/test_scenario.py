"""How a run begins, and when one may go on: with the same scenario, code, data and machine, and no other.

The search of a sweep, with trials of known speed in place of real ones: what wins, what is kept, and going on.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.execution.journal import TRIALS, append_trial, read_trials
from xttsbench.execution.limits import Limits
from xttsbench.execution.run_directory import lock_run, read_plan
from xttsbench.files import DRAFT_PREFIX
from xttsbench.records.plan import Procedure, RunPlan
from xttsbench.records.trial import Parity, TrialRecord
from xttsbench.workflows import runs
from xttsbench.workflows import scenario as module
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.measure.session import Session, Silent
from xttsbench.workflows.reports.scenario import assemble_sweep
from xttsbench.workflows.runs import judge_sweep
from xttsbench.workflows.saved import read_best, write_best
from xttsbench.workflows.scenario import Request, begin, search, sweep

TEXT = "name: mine\ntarget: data.py:make\ngrid: {ms: [1, 2, 3]}\nbudget_s: 60\n"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``start(text, **request)`` begins a run of that scenario in ``out``."""
    monkeypatch.chdir(tmp_path)
    machine = {"fingerprint": "f", "cpu": {}}
    for place in (module, runs):
        monkeypatch.setattr(place, "read_machine", lambda _: dict(machine))
    (tmp_path / "data.py").write_text("def make(): ...\n")

    def begun(text: str = TEXT, *, kind: str = "run", **fields: Any) -> Recorded:
        (tmp_path / "mine.yaml").write_text(text)
        request = Request(scenario="mine.yaml", **({"out": tmp_path / "out"} | fields))
        with begin(request, kind) as run:  # type: ignore[arg-type]
            return run

    begun.machine = machine  # type: ignore[attr-defined]
    return begun


def test_the_plan_is_on_disk_before_anything_is_measured(start: Any) -> None:
    begun = start()
    assert read_plan(begun.directory) == begun.plan
    assert begun.plan.code is not None
    assert begun.plan.data is None
    assert [arm.id for arm in begun.comparison.arms] == ["ms=1", "ms=2", "ms=3", "ms=1:again"]
    assert json.loads((begun.directory / "environment.json").read_text())["fingerprint"] == "f"
    assert begun.trials == ()


def test_a_run_goes_on_with_its_own_plan_and_trials(start: Any, build: Any) -> None:
    first = start(command="xttsbench run mine.yaml")
    trial = build.arm_trial("ms=1")
    append_trial(first.directory, trial)
    again = start(resume=True, command="xttsbench run mine.yaml --resume", budget_s=600.0)
    assert again.plan == first.plan.model_copy(update={"budget_s": 600.0}) == read_plan(first.directory)
    assert list(again.trials) == [trial]
    assert again.began < first.began + 60  # what the trial took is behind it
    with again.session(None) as session:
        assert session.spent_s >= trial.duration_s


SECRET = "Mark3r-0f-a-secret"


@pytest.mark.parametrize("redact", [False, True])
def test_a_secret_argument_is_given_again_to_go_on_and_the_same_one_is_known(start, build, redact: bool) -> None:
    first = start(settings={"api_key": SECRET}, command=f"run --set api_key={SECRET}", redact=redact)
    assert first.comparison.baseline.kwargs["api_key"] == SECRET
    trial = build.arm_trial("ms=1")
    spec = trial.spec.model_copy(update={"kwargs": {"ms": 1, "api_key": SECRET}})
    append_trial(first.directory, first.redaction.kept(trial.model_copy(update={"spec": spec})))
    again = start(settings={"api_key": SECRET}, resume=True)
    assert again.plan == first.plan.model_copy(update={"command": again.plan.command})
    assert SECRET not in "".join(path.read_text() for path in first.directory.iterdir())
    with again.session(None) as session:
        assert session.run(spec, Limits(1.0, 1.0)).spec.kwargs == {"ms": 1, "api_key": "***"}
    for other in ({"api_key": "other-secret-1"}, {}):
        with pytest.raises(UsageError, match=r"api_key.* needs the value that the run began with, .* give it again"):
            start(settings=other, resume=True)
    with pytest.raises(UsageError, match=r"api_key: received '\*\*\*'"):
        start(settings={"api_key": "***"}, resume=True)


def test_what_was_written_whole_does_not_go_on_redacted(start: Any) -> None:
    start()
    with pytest.raises(UsageError, match="was without --redact"):
        start(resume=True, redact=True)


def test_going_on_where_nothing_is_yet_begins(start: Any) -> None:
    assert start(resume=True).plan.kind == "run"


def test_going_on_after_a_kill_before_the_plan_was_written_begins(start: Any) -> None:
    first = start()
    (first.directory / "plan.json").rename(first.directory / f"{DRAFT_PREFIX}1-abc")
    assert start(resume=True).plan.kind == "run"
    assert sorted(path.name for path in first.directory.iterdir()) == ["environment.json", "plan.json"]


def test_going_on_in_a_directory_of_something_else_is_refused(start: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        start(resume=True)
    assert (tmp_path / "out" / "thesis.tex").exists()


@pytest.mark.parametrize("resume", [True, False])
def test_beside_a_run_that_lives_nobody_goes_on_with_it_or_begins_in_it(start: Any, build: Any, resume: bool) -> None:
    first = start()
    append_trial(first.directory, build.arm_trial("ms=1", status="interrupted"))
    before = {path.name: path.read_bytes() for path in first.directory.iterdir()}
    with lock_run(first.directory):
        with pytest.raises(UsageError, match=r"is in use by another process; wait for its end, or name another"):
            start(resume=resume, budget_s=600.0)
        assert {path.name: path.read_bytes() for path in first.directory.iterdir()} == before


def test_without_resume_a_run_s_directory_is_refused(start: Any) -> None:
    start()
    with pytest.raises(UsageError, match="already"):
        start()


def test_resume_needs_the_run_s_name(start: Any) -> None:
    with pytest.raises(UsageError, match="--out"):
        start(resume=True, out=None)


@pytest.mark.parametrize(
    ("text", "fields", "said"),
    [
        (TEXT.replace("[1, 2, 3]", "[1, 2, 4]"), {}, r"the scenario has changed \(arms\)"),
        (TEXT + "steps: 9\n", {}, r"the scenario has changed \(steps\)"),
        (TEXT, {"seed": 5}, "the seed was 0 and is 5"),
        (TEXT, {"accelerators": ("emulated:5",)}, r"the scenario has changed \(accelerators\)"),
        (TEXT, {"settings": {"x": 1}}, r"the scenario has changed \(arms\)"),
        (TEXT, {"kind": "sweep"}, "another command"),
    ],
)
def test_another_question_does_not_go_on(start: Any, text: str, fields: dict[str, Any], said: str) -> None:
    before = start()
    plan = (before.directory / "plan.json").read_bytes()
    with pytest.raises(UsageError, match=said):
        start(text, resume=True, **fields)
    assert (before.directory / "plan.json").read_bytes() == plan


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("code", "the target's code has changed"),
        ("data", "the data set has changed"),
        ("machine", "the machine or the version of TensorFlow"),
    ],
)
def test_with_other_code_or_data_or_elsewhere_it_does_not_go_on(start, tmp_path, monkeypatch, what, said) -> None:
    start()
    if what == "code":
        (tmp_path / "data.py").write_text("def make(): return 1\n")
    elif what == "data":
        monkeypatch.setattr(module, "data_identity", lambda _: "other")
    else:
        start.machine["fingerprint"] = "g"
    with pytest.raises(UsageError, match=said):
        start(resume=True)


def test_a_sweep_goes_on_with_more_time_and_not_as_another_one(start: Any) -> None:
    text = TEXT + "sweep: {blocks: 9}\n"
    start(text, kind="sweep")
    again = start(text, kind="sweep", resume=True, budget_s=500.0)
    assert (again.plan.procedure, again.plan.budget_s) == (Procedure(blocks=9), 500)
    with pytest.raises(UsageError, match="the scenario's sweep has changed"):
        start(text.replace("9", "3"), kind="sweep", resume=True)


def test_what_cannot_be_decided_is_refused_before_anything_is_written(start: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a sweep of 'mine' with 3 configurations takes \d+ s at least"):
        start(kind="sweep", budget_s=20.0)
    assert not (tmp_path / "out").exists()


def test_arguments_of_the_bundled_workload_are_checked_before_anything_is_made(start: Any, tmp_path: Path) -> None:
    text = "name: mine\nworkload: xtts\ngrid: {prefetsch: [1, 2]}\n"
    with pytest.raises(InvalidInputError, match="did you mean 'prefetch'"):
        start(text)
    assert not (tmp_path / "out").exists()


ENVIRONMENT: dict[str, Any] = {"cpu": {"model": "a CPU", "machine_cpus": 2}, "gpus": [], "fingerprint": "f"}
PROCEDURE = Procedure(blocks=6)


class Cut(BaseException):
    """The process is killed: nothing of ours runs after it."""


class Helper:
    """A helper that does nothing."""

    def __init__(self, **_: Any) -> None:
        self.pid = 1

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait_ready(self) -> None:
        pass

    def exit_code(self) -> None:
        return None


class Standings(Silent):
    """Progress that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def status(self, sentence: str) -> None:
        self.told.append(sentence)


class Swept(NamedTuple):
    """What a sweep measured and reported, its exit code, and the sentence beside it."""

    trials: list[TrialRecord]
    report: Any
    code: int
    said: str | None


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, build: Any) -> Any:
    """``world.sweep("abc")`` searches among these in a directory; ``world.cut_after`` trials it is killed."""

    class World:
        directory = tmp_path
        speeds: dict[str, float]
        endings: dict[str, dict[str, Any]]
        cut_after: int | None = None
        ran: list[str]
        parity: Parity | None = None
        progress = Standings()

        def __init__(self) -> None:
            self.speeds, self.endings, self.ran = {}, {}, []

        def run_trial(self, spec: Any, *_: Any, **__: Any) -> TrialRecord:
            if self.cut_after is not None and len(self.ran) >= self.cut_after:
                raise Cut
            self.ran.append(spec.trial_id)
            if spec.kind == "parity":
                found = self.parity or Parity(batches=4, tolerance=1e-4, same=tuple(spec.others))
                return build.trial("parity", parity=found).model_copy(update={"spec": spec})
            arm = spec.arm.removesuffix(":again")
            if arm in self.endings:
                return build.trial("arm", **self.endings[arm]).model_copy(update={"spec": spec})
            wall = 0.02 / self.speeds.get(arm, 1.0)
            record = build.arm_trial(spec.arm, wall, block=spec.block, process_sd=0.01, steps=30)
            return record.model_copy(update={"spec": spec})

        def go(self, comparison: Any, procedure: Procedure = PROCEDURE) -> list[TrialRecord]:
            earlier = read_trials(tmp_path) if (tmp_path / TRIALS).exists() else []
            with Session(tmp_path, earlier=earlier, budget_s=1e6) as session:
                search(comparison, procedure, session, until_s=1e6, seed=3, progress=self.progress)
            return session.trials

        def report(self, comparison: Any, trials: Any, procedure: Procedure = PROCEDURE) -> Any:
            planned = {"steps": 30, "seed": 3, "code": "c", "comparison": comparison, "procedure": procedure}
            plan = build.run_plan(kind="sweep", **planned)
            return assemble_sweep(Recorded(tmp_path / "20260102-mine", plan, ENVIRONMENT, trials))

        def sweep(self, names: str, procedure: Procedure = PROCEDURE, **fields: Any) -> Swept:
            comparison = build.comparison(*names, **fields)
            trials = self.go(comparison, procedure)
            report = self.report(comparison, trials, procedure)
            return Swept(trials, report, *judge_sweep(report, trials, comparison))

    made = World()
    monkeypatch.setattr(Session, "side_by_side", "simulated")
    monkeypatch.setattr("xttsbench.workflows.measure.session.Helper", Helper)
    monkeypatch.setattr("xttsbench.workflows.measure.session.run_trial", made.run_trial)
    monkeypatch.setattr("xttsbench.workflows.measure.session.open_gpus", lambda: (None, "none here"))
    return made


def test_the_fastest_arm_is_proven_and_written_down(world) -> None:
    world.speeds = {"b": 1.2, "c": 1.5, "d": 0.8}
    swept = world.sweep("abcd", configs={name: {"prefetch": index} for index, name in enumerate("abcd")})
    best = swept.report.best
    assert (best.arm, best.proven, best.config) == ("c", True, {"prefetch": 2})
    assert best.effect.estimate == pytest.approx(1.5, rel=0.02)
    assert best.baseline == {"arm": "a", "config": {"prefetch": 0}}
    assert (best.accelerator["kind"], best.fingerprint.code) == ("real", "c")
    # Everything that was measured counts, and who cannot win is measured no further.
    blocks = {arm.id: arm.blocks for arm in swept.report.arms}
    assert best.blocks == best.rounds == blocks["c"] == blocks["a"] <= 4
    assert best.evidence > 60
    assert blocks["d"] <= blocks["b"] <= blocks["c"]
    assert {arm.group for arm in swept.report.arms} == {"loaders"}
    assert (swept.code, swept.said) == (0, None)
    write_best(world.directory, best)
    assert read_best(world.directory) == best


def test_the_data_are_compared_once(world) -> None:
    swept = world.sweep("abc")
    assert [trial.spec.kind for trial in swept.trials].count("parity") == 1
    assert swept.report.parity["same"]
    assert "parity" not in swept.report.unmeasured


def test_equal_arms_leave_the_baseline(world) -> None:
    """No gain is to be seen, which ends it; that there is none of 2 % takes more than a sweep has."""
    best = world.sweep("abc", Procedure(blocks=30)).report.best
    assert (best.arm, best.proven, best.effect, best.decided) == ("a", False, None, False)
    assert re.search(r"none looks faster by 2%, and gains above \d+% are ruled out", best.why)


def test_what_is_not_decided_is_said_to_be(world) -> None:
    world.speeds = {"b": 1.04}
    swept = world.sweep("ab", Procedure(blocks=2))
    assert (swept.report.best.arm, swept.report.best.decided) == ("a", False)
    assert swept.code == 3
    assert swept.said.startswith("Undecided: a is kept: whether b is faster is undecided")


def test_an_arm_that_dies_is_out_and_the_sweep_goes_on(world) -> None:
    world.speeds = {"b": 3.0, "c": 1.5}
    world.endings = {"b": {"status": "out_of_memory", "cause": "no memory is left"}}
    swept = world.sweep("abc")
    assert [trial.spec.arm for trial in swept.trials].count("b") == 1
    assert (swept.report.best.arm, swept.code) == ("c", 0)
    assert next(arm for arm in swept.report.arms if arm.id == "b").status.startswith("out_of_memory")


def test_a_baseline_that_dies_ends_it_without_a_best(world) -> None:
    world.endings = {"a": {"status": "killed", "cause": "killed by SIGKILL"}}
    swept = world.sweep("abc")
    assert swept.report.best is None
    assert swept.code == 4
    assert "the baseline ended (killed: killed by SIGKILL)" in swept.said or "the baseline a ended" in swept.said
    assert len([trial for trial in swept.trials if trial.spec.arm.startswith("a")]) <= 3


def test_all_candidates_that_die_leave_the_baseline(world) -> None:
    world.endings = {name: {"status": "stalled", "cause": "silent for 60 s"} for name in "bc"}
    best = world.sweep("abc").report.best
    assert (best.arm, best.proven, best.decided) == ("a", False, False)
    assert "stalled" in best.why


def test_an_arm_with_other_data_or_unknown_data_is_not_measured(world) -> None:
    world.parity = Parity(batches=4, tolerance=1e-4, same=("d",), differences={"b": "mel"}, failed={"c": "no file"})
    world.speeds = {"b": 9.0, "c": 8.0, "d": 1.5}
    swept = world.sweep("abcd")
    assert {trial.spec.arm for trial in swept.trials if trial.spec.kind == "arm"} == {"a", "a:again", "d"}
    assert swept.report.best.arm == "d"


def test_data_that_nobody_can_compare_end_it_before_anything_is_measured(world) -> None:
    world.parity = Parity(batches=4, tolerance=1e-4, reproducible=False, why_not="mel differs")
    swept = world.sweep("abc")
    assert [trial.spec.kind for trial in swept.trials] == ["parity"]
    assert swept.report.best is None
    assert swept.code != 0


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_killed_at_any_trial_goes_on_to_the_same_decision_byte_for_byte(world, build, every: int) -> None:
    world.speeds = {"b": 1.2, "c": 1.5}
    comparison = build.comparison(*"abc")
    whole = world.go(comparison)
    wanted = world.report(comparison, whole).model_dump_json()
    order = list(world.ran)
    for count in range(0, len(order), every):
        (world.directory / TRIALS).unlink()
        world.ran.clear()
        world.cut_after = count
        with pytest.raises(Cut):
            world.go(comparison)
        world.cut_after, done = None, list(world.ran)
        world.ran.clear()
        trials = world.go(comparison)
        assert done + world.ran == order  # none twice, none left out
        assert world.report(comparison, trials).model_dump_json() == wanted
        assert world.report(comparison, read_trials(world.directory)).model_dump_json() == wanted


def test_a_torn_last_line_is_one_trial_to_run_again(world, build) -> None:
    comparison = build.comparison(*"ab")
    world.go(comparison)
    path = world.directory / TRIALS
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    world.ran.clear()
    world.go(comparison)
    assert len(world.ran) == 1
    assert [json.loads(line)["spec"] for line in path.read_bytes().splitlines()] == [
        json.loads(line)["spec"] for line in content.splitlines()
    ]


def test_two_minutes_are_enough_for_five_configurations_and_half_a_minute_is_refused(tmp_path: Path) -> None:
    scenario = tmp_path / "five.yaml"
    scenario.write_text("name: five\ntarget: os:getcwd\ngrid: {n: [1, 2, 3, 4, 5]}\n", encoding="utf-8")
    out = tmp_path / "run"
    with pytest.raises(UsageError, match=r"with 5 configurations takes [5-9][0-9] s at least") as refused:
        sweep(Request(str(scenario), budget_s=30.0, out=out, command="xttsbench sweep"))
    assert float(str(refused.value).split(" takes ")[1].split()[0]) < 120
    assert not out.exists()


def test_on_a_cluster_a_run_goes_on_redacted_and_on_unlike_machines(tmp_path: Path, start: Any) -> None:
    class Machines:
        environments = ({"fingerprint": "f"},)
        asked: ClassVar[list[RunPlan]] = []

        def admit(self, plan: RunPlan) -> int:
            self.asked.append(plan)
            return 2

    start()  # writes the scenario
    for fields in ({"redact": True}, {"resume": True}):
        request = Request(scenario="mine.yaml", out=tmp_path / "two", **fields)  # type: ignore[arg-type]
        with begin(request, "run", None, Machines()) as run:  # type: ignore[arg-type]
            assert run.plan.devices == 2
        Machines.environments = ({"fingerprint": "of a machine that joined"},)
    assert [plan.redact for plan in Machines.asked] == [True, True]
