"""``xttsbench synthesize`` as a user types it: the parent has no TensorFlow, and what went wrong is one sentence."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.parent import WITHOUT_TENSORFLOW, python
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.wav import read_canonical_wav


def xttsbench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return python("-c", WITHOUT_TENSORFLOW, *arguments, cwd=cwd)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps."""
    directory = tmp_path_factory.mktemp("trained")
    make_data(directory / "speech", 20, 0, 0.5, 1.0, speakers=2)
    ended = xttsbench(
        *("train", "tiny", "--data", "speech", "--steps", "2", "--out", "run", "--set", "batch_size=4"), cwd=directory
    )
    assert ended.returncode == 0, ended.stderr
    return directory / "run"


def test_a_run_speaks(run: Path, tmp_path: Path) -> None:
    ended = xttsbench(
        *("synthesize", "--checkpoint", str(run), "--speaker", "middle", "--out", "a.wav", "--json", "Soli 3!"),
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["step"], told["speaker"], told["left_out"]) == (2, "middle", "3")
    assert "left out of the text, for the model does not know them: '3'" in ended.stderr
    assert len(read_canonical_wav(tmp_path / "a.wav", 22_050)) == round(told["seconds"] * 22_050)
    assert [path.name for path in tmp_path.iterdir()] == ["a.wav"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["a"], 5, "holds no checkpoint"),
        ([""], 5, "the text is empty"),
        (["a", "--out", "."], 2, ". is a directory"),
        (["a", "--speaker", "x", "--reference", "y.wav"], 2, "give one of them"),
    ],
)
def test_what_cannot_be_is_one_sentence(arguments: list[str], code: int, sentence: str, tmp_path: Path) -> None:
    ended = xttsbench("synthesize", "--checkpoint", str(tmp_path), *arguments, cwd=tmp_path)
    assert ended.returncode == code
    assert ended.stderr.startswith("Error: ")
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
