from __future__ import annotations

from pathlib import Path

import pytest

from xttsbench.errors import InvalidInputError, JournalError, UsageError
from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.execution.journal import TRIALS, append_trial
from xttsbench.records.plan import Accelerator


def test_the_real_device_has_no_step_times() -> None:
    assert parse_accelerator("real") == Accelerator(kind="real", label="real device", step_times_ms=())


@pytest.mark.parametrize(("text", "milliseconds"), [("20", 20.0), ("0.5", 0.5), ("1e2", 100.0), ("600000", 6e5)])
def test_milliseconds_a_step(text: str, milliseconds: float) -> None:
    found = parse_accelerator(f"emulated:{text}")
    assert found.kind == "emulated"
    assert found.step_times_ms == (milliseconds,)
    assert found.label == f"emulated accelerator, {milliseconds:g} ms a step"
    assert found.source is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "emulated:",
        "gpu",
        "emulated:0",
        "emulated:nan",
        "emulated:600001",
        "emulated:nowhere.txt",
        "emulated:" + "x" * 400,
        "emulated:a\x00b",
    ],
)
def test_anything_else_is_a_usage_error_that_echoes_it(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_accelerator(text)
    assert caught.value.exit_code == 2
    assert repr(text)[1:-1] in str(caught.value) or text in str(caught.value)
    assert "emulated:MS" in str(caught.value) or "must be above 0" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("times.txt", "# recorded on an A100\n10\n 20.5 \n\n30,  # slow\n"),
        ("times.csv", "10;\n20.5;\n30;\n"),
        ("times.json", "[10, 20.5, 30]"),
    ],
)
def test_recorded_times_from_a_file(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    found = parse_accelerator(f"emulated:{tmp_path / name}")
    assert found.step_times_ms == (10.0, 20.5, 30.0)
    assert found.source == str(tmp_path / name)
    assert "3 recorded step times, mean 20.2 ms" in found.label
    assert found.label.startswith("emulated")


@pytest.mark.parametrize("named", ["", TRIALS])
def test_the_steps_alone_of_a_run_are_replayed_without_their_warm_up(tmp_path: Path, build, named: str) -> None:
    alone = build.segment("step_only", step_s=[9.0, 0.010, 0.020], warmup=1)
    append_trial(tmp_path, build.trial("ladder", build.segment(step_s=[5.0]), alone))
    append_trial(tmp_path, build.trial("graph", build.segment("step_only", step_s=[0.030])))
    found = parse_accelerator(f"emulated:{tmp_path / named}")
    assert found.step_times_ms == pytest.approx((10.0, 20.0, 30.0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("10\ntwenty\n", r"line 2: 'twenty' is not a number of milliseconds; write one number a line"),
        ("", r"must be milliseconds above 0 .* and it holds none"),
        ("1;10.5\n", r"line 1: '1;10\.5' is not a number"),
        ("1, 10\n", r"line 1: '1, 10' is not a number"),
        ("10\n0\n", r"it holds 0\.0"),
        ("nan\n", r"it holds nan"),
        ("[1e999]", r"it holds inf"),
        ("[1" + "0" * 400 + "]", r"it holds inf"),
        ('[1, "2"]', r"line 1: '\"2\"' is not a number"),
        ('{"times": [1]}', r"line 1: '{\"times\": \[1\]}' is not a number"),
    ],
)
def test_a_malformed_file_is_one_sentence_with_the_file_and_the_value(tmp_path, content, message) -> None:
    path = tmp_path / "times"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match=message) as caught:
        parse_accelerator(f"emulated:{path}")
    assert caught.value.exit_code == 5
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "times").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match="cannot be read as text"):
        parse_accelerator(f"emulated:{tmp_path / 'times'}")


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No journal at") as caught:
        parse_accelerator(f"emulated:{tmp_path}")
    assert caught.value.exit_code == 5


def test_a_run_without_steps_alone(tmp_path: Path, build) -> None:
    append_trial(tmp_path, build.trial("ladder", build.segment(step_s=[1.0])))
    with pytest.raises(InvalidInputError, match="it holds none"):
        parse_accelerator(f"emulated:{tmp_path}")


def test_a_very_long_recording_is_cut(tmp_path: Path) -> None:
    (tmp_path / "times").write_text("1\n" * 20_001)
    assert len(parse_accelerator(f"emulated:{tmp_path / 'times'}").step_times_ms) == 20_000


def test_a_file_beside_a_scenario_is_found_unless_one_lies_nearer(tmp_path: Path, monkeypatch) -> None:
    beside, here = tmp_path / "scenarios", tmp_path / "here"
    beside.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    (beside / "steps.txt").write_text("3\n5\n")
    found = parse_accelerator("emulated:steps.txt", beside=beside)
    assert (found.step_times_ms, found.source) == ((3.0, 5.0), "steps.txt")
    (here / "steps.txt").write_text("7\n")
    assert parse_accelerator("emulated:steps.txt", beside=beside).step_times_ms == (7.0,)
    with pytest.raises(UsageError, match=r"nowhere\.txt"):
        parse_accelerator("emulated:nowhere.txt", beside=beside)


class Gpus:
    """A driver that is there."""

    closed = False

    def close(self) -> None:
        self.closed = True


def test_a_gpu_is_taken_where_there_is_one_and_emulated_where_not(monkeypatch) -> None:
    gpus = Gpus()
    monkeypatch.setattr("xttsbench.execution.accelerator.open_gpus", lambda: (gpus, None))
    assert parse_accelerator("gpu-or-emulated:10") == Accelerator()
    assert gpus.closed
    monkeypatch.setattr("xttsbench.execution.accelerator.open_gpus", lambda: (None, "no driver"))
    assert parse_accelerator("gpu-or-emulated:10") == parse_accelerator("emulated:10")


@pytest.mark.parametrize("text", ["gpu-or-", "gpu-or-emulated:", "gpu-or-emulated:-1", "gpu-or-fast"])
def test_what_stands_for_a_gpu_is_checked_with_one_too(monkeypatch, text: str) -> None:
    monkeypatch.setattr("xttsbench.execution.accelerator.open_gpus", lambda: (Gpus(), None))
    with pytest.raises(UsageError):
        parse_accelerator(text)
