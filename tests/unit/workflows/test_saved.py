"""``best.yaml``: what is written is what is read, whatever else lies there is refused, and differences are named."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.records.base import Estimate
from xttsbench.records.fix import Optimized
from xttsbench.records.pipeline import GraphIdentity
from xttsbench.records.report import Best, Fingerprint, Report
from xttsbench.workflows import saved as module
from xttsbench.workflows.code_identity import code_identity
from xttsbench.workflows.saved import (
    differences,
    differences_here,
    fingerprint_of,
    newest_best,
    read_best,
    read_plan,
    read_report,
    report_of,
    write_best,
    write_plan,
)

FOUND_ON = Fingerprint(environment="e", cpu="a CPU", cpus=2.0, tensorflow="2.21.0", code="c0de", data="da7a")


def best(**changes: object) -> Best:
    fields = {
        "run": "20260102T030405Z-prefetch",
        "workload": "xtts",
        "arm": "prefetch=4",
        "config": {"loader": "packed", "prefetch": 4, "lr": 1e-4, "note": "ä: #no"},
        "proven": True,
        "decided": True,
        "why": "prefetch=4 is 1.310x (1.200 to 1.420) as fast as prefetch=0 in 8 fresh blocks.",
        "effect": Estimate(estimate=1.31, low=1.2, high=1.42),
        "baseline": {"arm": "prefetch=0", "config": {"loader": "packed", "prefetch": 0}},
        "blocks": 8,
        "accelerator": {"kind": "emulated", "label": "emulated accelerator, 10 ms a step", "source": None},
        "steps_per_trial": 80,
        "tied_with": ("prefetch=8",),
        "fingerprint": FOUND_ON,
        "xttsbench_version": "0.1.0",
    }
    return Best.model_validate(fields | changes)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    path = write_best(tmp_path, best())
    assert path == tmp_path / "best.yaml"
    assert read_best(path) == read_best(tmp_path) == best()
    assert [file.name for file in tmp_path.iterdir()] == ["best.yaml"]


def test_the_file_has_the_promised_keys_and_plain_values(tmp_path: Path) -> None:
    write_best(tmp_path, best())
    content = yaml.safe_load((tmp_path / "best.yaml").read_text(encoding="utf-8"))
    promised = ["schema_version", "run", "workload", "config", "proven", "effect", "blocks", "accelerator"]
    promised += ["steps_per_trial", "tied_with", "fingerprint", "xttsbench_version", "baseline", "target"]
    assert set(promised) <= content.keys()
    assert content["schema_version"] == 3
    assert content["config"]["lr"] == 1e-4
    assert content["effect"] == {"estimate": 1.31, "low": 1.2, "high": 1.42}


def test_without_a_choice_an_older_file_does_not_stay(tmp_path: Path) -> None:
    write_best(tmp_path, best())
    assert write_best(tmp_path, None) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [read_best, read_plan])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds NoneType, not the keys of NAME"),
        (b"- 1\n", "holds list, not the keys of NAME"),
        (b"run: x\n", "schema_version is None"),
        (b"schema_version: 9\n", "schema_version is 9, and this version of xttsbench reads 3"),
        (b"schema_version: 3\nrun: x\n", r"NAME: \w+: is missing"),
        (b"a: [1\n", "is not YAML"),
        (b"\xff\xfe\x00", "is not YAML"),
        (b"!!python/object/apply:os.system ['true']\n", "is not YAML"),
    ],
)
def test_what_is_neither_is_refused(tmp_path: Path, kind, content: bytes, said: str) -> None:
    name = "best.yaml" if kind is read_best else "optimized.yaml"
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInputError, match=said.replace("NAME", name)):
        kind(tmp_path)


def test_a_missing_one_is_refused_with_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"name a best\.yaml, or the directory of a sweep"):
        read_best(tmp_path / "nowhere" / "best.yaml")
    with pytest.raises(InvalidInputError, match=r"name an optimized\.yaml, or the directory of a run"):
        read_plan(tmp_path / "nowhere")


def test_the_newest_is_that_of_the_latest_run_that_has_one(tmp_path: Path) -> None:
    assert newest_best(tmp_path / "reports") is None
    for name in ("20260101T000000Z-a", "20260103T000000Z-b", "20260104T000000Z-c"):
        (tmp_path / name).mkdir()
    assert newest_best(tmp_path) is None
    write_best(tmp_path / "20260101T000000Z-a", best())
    write_best(tmp_path / "20260103T000000Z-b", best())
    assert newest_best(tmp_path) == tmp_path / "20260103T000000Z-b" / "best.yaml"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"data": None, "code": None}, None),  # what nobody knows is no difference
        ({"cpu": "another"}, "processor: a CPU where it was found, another here"),
        ({"cpus": 64.0}, "processors that may be used: 2.0 where it was found, 64.0 here"),
        ({"gpus": ("H200", "H200")}, "GPUs: none where it was found, H200, H200 here"),
        ({"tensorflow": "2.20.0"}, "TensorFlow: 2.21.0 where it was found, 2.20.0 here"),
        ({"data": "f00d"}, "data set (hash): da7a where it was found, f00d here"),
    ],
)
def test_every_difference_is_named(change: dict[str, object], said: str | None) -> None:
    assert differences(best(), FOUND_ON.model_copy(update=change)) == ([said] if said else [])


def test_this_machine_and_code_are_what_it_is_held_against(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def make(): ...\n")
    machine = {"cpu": {"model": "a CPU", "machine_cpus": 2}, "gpus": [], "packages": {"tensorflow": "2.21.0"}}
    monkeypatch.setattr(module, "environment", lambda: machine)
    found_on = fingerprint_of(machine, code=code_identity("mine.py:make", bundled=False), data=None)
    mine = best(workload=None, target="mine.py:make", fingerprint=found_on)
    assert differences_here(mine) == []
    (tmp_path / "mine.py").write_text("def make(): return 1\n")
    machine["cpu"]["model"] = "another"  # type: ignore[index]
    processor, code = differences_here(mine)
    assert processor == "processor: a CPU where it was found, another here"
    assert code.startswith("code (hash): ")


def test_the_fingerprint_has_the_fewest_processors_that_any_limit_leaves() -> None:
    cpu = {"model": "m", "machine_cpus": 64, "affinity_cpus": 8, "quota_cpus": 2.5}
    machine = {"cpu": cpu, "gpus": [{"name": "H200"}], "packages": {"tensorflow": "2.21.0"}, "fingerprint": "abc"}
    found = fingerprint_of(machine, code="c", data=None)
    assert (found.cpus, found.gpus, found.environment, found.tensorflow) == (2.5, ("H200",), "abc", "2.21.0")
    assert fingerprint_of({}, code=None, data=None).environment == "unknown"


def plan(**changes: object) -> Optimized:
    fields = {
        "run": "reports/20260102T030405Z-optimize",
        "target": "data.py:make",
        "kwargs": {"batch": 8, "note": "ä: #no"},
        "fixes": ("parallel-map:16", "thread-pool:16", "cache@MapDataset/_4"),
        "identity": GraphIdentity(graph="0011223344556677", data="8899aabbccddeeff"),
        "speedup": Estimate(estimate=2.5, low=2.1, high=2.9),
        "equivalent": True,
        "data": "64 elements of 2 epochs are identical.",
        "proven": True,
        "blocks": 8,
        "fingerprint": "0123456789abcdef",
        "xttsbench_version": "0.1.0",
    }
    return Optimized.model_validate(fields | changes)


_NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(target="\x85\u2028", fixes=["\x85"], key="\x85", value=None)
@given(target=st.text(), fixes=st.lists(st.text()), key=st.text(), value=_NUMBERS)
def test_no_text_of_a_target_can_break_the_file(
    tmp_path: Path, target: str, fixes: list[str], key: str, value: float | None
) -> None:
    written = plan(target=target, fixes=tuple(fixes), kwargs={key: value})
    assert read_plan(write_plan(tmp_path, written)) == written


def test_the_file_opens_with_two_lines_that_apply_it(tmp_path: Path) -> None:
    folder = tmp_path / "a 'run'"
    folder.mkdir()
    path = write_plan(folder, plan())
    head = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    code = "\n".join(line.removeprefix("#     ") for line in head if line.startswith("#     "))
    imported, called = ast.parse(code).body
    assert isinstance(imported, ast.Import)
    assert isinstance(called, ast.Assign)
    assert isinstance(called.value, ast.Call)
    assert ast.literal_eval(called.value.keywords[0].value) == str(path)


def test_a_plan_without_a_fix_says_so(tmp_path: Path) -> None:
    path = write_plan(tmp_path, plan(fixes=(), speedup=None, equivalent=None, proven=False))
    assert "No fix was better than the original" in path.read_text(encoding="utf-8")
    assert read_plan(path).fixes == ()


def test_all_that_is_wrong_is_in_one_message(tmp_path: Path) -> None:
    content = plan().model_dump(mode="json")
    del content["proven"]
    content |= {"fixes": 7, "blokcs": 8, "speedup": {"estimate": "fast", "low": 1.0, "high": 2.0}}
    (tmp_path / "optimized.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(InvalidInputError) as caught:
        read_plan(tmp_path)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "optimized.yaml"))
    assert "proven: is missing" in message
    assert "blokcs: no such key" in message
    assert "received 7" in message
    assert "speedup.estimate: " in message
    assert "received 'fast'" in message
    assert message.endswith("Run 'xttsbench optimize' again, or mend the file.")


def test_the_report_of_the_run_is_found_beside_the_file_or_where_the_plan_names_it(tmp_path: Path) -> None:
    found = plan(run=str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    report = report_of(found, "data.py:make")
    (tmp_path / "run" / "report.json").write_text(report.model_dump_json())
    elsewhere = tmp_path / "copied" / "optimized.yaml"
    assert read_report(tmp_path / "run", found) == report
    assert read_report(elsewhere, found) == report
    assert read_report(None, found) == report


def test_the_report_of_another_run_is_not_that_of_the_plan(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(report_of(plan(blocks=12), "data.py:make").model_dump_json())
    assert read_report(tmp_path, plan(run=str(tmp_path))) is None
    (tmp_path / "report.json").write_text("{")
    assert read_report(tmp_path, plan(run=str(tmp_path))) is None


def test_without_a_run_the_report_says_what_was_applied_and_that_nothing_was_measured() -> None:
    report = report_of(plan(), "data.py:make")
    assert (report.kind, report.optimized) == ("optimize", plan())
    assert report.verdict.bottleneck == "inconclusive"
    assert "parallel-map:16, thread-pool:16, cache@MapDataset/_4" in report.verdict.summary
    assert report.unmeasured["verdict.step_time_s"] == "nothing was measured: a saved plan was applied"
    assert Report.model_validate_json(report.model_dump_json()) == report
