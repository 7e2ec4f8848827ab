"""What ``synthesize`` refuses before any process is started, and what it hands to one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xttsbench.errors import InvalidInputError, UsageError, XttsbenchError
from xttsbench.records.training import Synthesised, SynthesisJob
from xttsbench.workflows import synthesize
from xttsbench.workflows.synthesize import synthesise


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[SynthesisJob]:
    told: list[SynthesisJob] = []

    def run(job: SynthesisJob, **_: Any) -> Synthesised:
        told.append(job)
        fields: dict[str, Any] = {"left_out": "", "speaker": None, "step": 1, "averaged": False, "stopped": True}
        return Synthesised(out=job.out, text=job.text, seconds=1.0, synthesis_s=0.1, sound_s=0.1, **fields)

    monkeypatch.setattr(synthesize, "run_synthesis", run)
    return told


@pytest.mark.parametrize(
    ("text", "changes", "error", "match"),
    [
        ("", {}, InvalidInputError, "the text is empty"),
        (" \n", {}, InvalidInputError, "the text is empty"),
        ("12 €", {}, InvalidInputError, "no character of '12 €' is known"),
        ("a", {"speaker": "low", "reference": Path("x.wav")}, UsageError, "give one of them"),
        ("a", {"out": Path("folder")}, UsageError, "folder is a directory"),
        ("a", {"out": Path("nowhere/a.wav")}, UsageError, "nowhere is no directory"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    text: str,
    changes: dict[str, Any],
    error: type[XttsbenchError],
    match: str,
    jobs: list[SynthesisJob],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(error, match=match):
        synthesise(Path("run"), text, **({"out": Path("a.wav")} | changes))
    assert not jobs


def test_the_process_is_told_absolute_paths(
    jobs: list[SynthesisJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    synthesise(Path("run"), "soli", out=Path("a.wav"), reference=Path("voice.wav"))
    (job,) = jobs
    assert (job.checkpoint, job.out) == (str(tmp_path / "run"), str(tmp_path / "a.wav"))
    assert (job.reference, job.speaker, job.text) == (str(tmp_path / "voice.wav"), None, "soli")
