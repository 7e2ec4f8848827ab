"""Tests apply patches without ``patch`` and git, too, as on a machine that has Python and make alone."""

from __future__ import annotations

import difflib
import random
import shutil
from pathlib import Path

import pytest

from tests.patching import apply_patch


@pytest.mark.parametrize("seed", range(30))
def test_a_diff_is_applied_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    before = [f"line {n}\n" for n in range(60)]
    after = [f"other {line}" if rng.random() < 0.1 else line for line in before if rng.random() > 0.05]
    after.insert(rng.randrange(len(after)), "new\n")
    for name in ("a.py", "in/b.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("".join(before))
    diff = "".join(
        line
        for name in ("a.py", "in/b.py")
        for line in difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", n=rng.choice([0, 3]))
    )
    monkeypatch.setattr(shutil, "which", lambda _: None)
    apply_patch(diff, tmp_path)
    assert [(tmp_path / name).read_text() for name in ("a.py", "in/b.py")] == ["".join(after)] * 2
    with pytest.raises((AssertionError, IndexError)):
        apply_patch(diff, tmp_path)
