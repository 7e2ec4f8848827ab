"""How the benchmark of diagnosis starts its looks and prints their rows: failures are told, never counted as right."""

import sys
import time
from pathlib import Path

import looks
import pytest
import table
from cases import Case

UNKNOWN = Case("no_such_case", "healthy", ("compute",))


def python(code):
    return [sys.executable, "-c", code]


def test_what_takes_too_long_is_ended_with_what_it_started(tmp_path):
    started = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))"
    began = time.monotonic()
    code, printed, said = looks.run(
        python(
            f"import subprocess, time; child = subprocess.Popen(['sleep', '600']); {started}; print(1); time.sleep(600)"
        ),
        3.0,
    )
    assert (code, printed) == (None, "")
    assert "longer than 3 s" in said
    assert time.monotonic() - began < 60
    if (tmp_path / "pid").exists():
        status = Path(f"/proc/{(tmp_path / 'pid').read_text()}/status")
        deadline = time.monotonic() + 10
        while status.exists() and "zombie" not in status.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not status.exists() or "zombie" in status.read_text()


def test_output_and_exit_code_are_kept_apart():
    found = looks.run(python("import sys; print('told'); print('said', file=sys.stderr); sys.exit(3)"), 60.0)
    assert (found[0], found[1].strip()) == (3, "told")
    assert found[2].strip() == "said"


def test_a_look_that_fails_is_an_error(tmp_path):
    found = looks.look(UNKNOWN, tmp_path, "time")
    assert set(found) == {"error"}
    assert "exit code 1" in found["error"]


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ('noise\n{"steps": 3}\n', {"steps": 3}),
        ("", {"error": "exit code 0: no answer"}),
        ("noise\n", {"error": "exit code 0: no answer"}),
    ],
)
def test_the_answer_is_the_last_line(monkeypatch, tmp_path, printed, found):
    monkeypatch.setattr(looks, "run", lambda command, limit_s: (0, printed, ""))
    assert looks.look(UNKNOWN, tmp_path, "time") == found


def test_a_diagnosis_without_a_report_is_told_with_what_it_said(monkeypatch, tmp_path):
    case = Case("big_shuffle_of_ids", "healthy", ("compute",), accelerator_ms=10)
    asked = []

    def run(command, limit_s):
        asked.extend(command)
        return 5, "", "Target raised."

    monkeypatch.setattr(looks, "run", run)
    found = looks.diagnose(case, tmp_path, 30.0)
    assert (found["report"], found["exit_code"], found["error"]) == (None, 5, "Target raised.")
    assert asked[asked.index("--accelerator") + 1] == "emulated:10"
    assert asked[asked.index("--budget") + 1] == "30"
    assert list(tmp_path.iterdir()) == [], "its files are gone"


def test_a_failed_diagnosis_is_a_line_with_its_reason():
    row = {
        "case": "a",
        "known": "input",
        "right": False,
        "seconds": 3.0,
        "tuned_over_plain": None,
        "wrongly_limiting": [],
        "problems": ["exit code 1: none"],
        "diagnosis_failed": "Target raised.",
    }
    head, *notes = table.line(row).splitlines()
    assert "failed" in head
    assert " NO " in head
    assert [note.strip() for note in notes] == ["Target raised.", "exit code 1: none"]


def test_what_is_missing_or_wrong_is_said_below_the_line():
    row = {
        "case": "a",
        "known": "input",
        "bottleneck": "input",
        "right": False,
        "line_found": True,
        "seconds": 44.0,
        "residual_share": 0.011,
        "tuned_over_plain": 3.1,
        "prediction_error": 0.07,
        "tuned_prediction_error": None,
        "round_trip": True,
        "missing": ["late-filter"],
        "wrongly_limiting": ["thread-pool"],
        "problems": [],
        "xprof": {"markers": {"says": "input", "input_share": 0.69}},
    }
    head, *notes = table.line(row).splitlines()
    assert head.split() == ["a", "input", "input", "NO", "yes", "44", "1%", "3.1", "7%", "yes", "input", "69%"]
    assert [note.strip() for note in notes] == ["missing late-filter", "wrongly limiting: thread-pool"]
