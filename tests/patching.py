"""Patches as a user applies them: by ``patch -p1`` or git and, on a machine with neither, line by line here."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")


def apply_patch(diff: str, folder: Path) -> None:
    """Apply a unified diff to the files of a folder."""
    program = next((one for one in (["patch", "-p1"], ["git", "apply", "-p1"]) if shutil.which(one[0])), None)
    if program is not None:
        subprocess.run(program, input=diff, text=True, cwd=folder, check=True, capture_output=True)
        return
    for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        _, named, *lines = part.splitlines(keepends=True)
        file = folder / named.removeprefix("+++ ").strip().split("\t")[0].partition("/")[2]
        file.write_text("".join(_patched(file.read_text(encoding="utf-8").splitlines(keepends=True), lines)), "utf-8")


def _patched(before: list[str], diff: list[str]) -> list[str]:
    """The lines of a file after the hunks of its part of a diff, each of which has to be where it says."""
    after: list[str] = []
    at = 0
    for line in diff:
        if found := _HUNK.match(line):
            begin = int(found[1]) - (found[2] != "0")
            after += before[at:begin]
            at = begin
        elif line[:1] in " -":
            assert before[at] == line[1:], f"line {at + 1} is {before[at]!r}, not {line[1:]!r}"
            after += [line[1:]] if line[0] == " " else []
            at += 1
        elif line[:1] == "+":
            after.append(line[1:])
    return after + before[at:]
