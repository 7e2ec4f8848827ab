"""The traceback of what a script raised: the script's frames, and none of those that watch it."""

from __future__ import annotations

import traceback

import pytest

from xttsbench.targets.source import training_loops
from xttsbench.worker.script.process import print_error

SCRIPT = "/somewhere/train.py"
BODY = "def broken():\n    raise ValueError('clip 3')\ndef through(call):\n    call(broken)\nthrough(ours)\n"


def test_frames_that_watch_a_script_are_in_no_traceback_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"__name__": "x"}
    ours = compile("def ours(call):\n    return call()\n", training_loops.__file__, "exec")
    exec(ours, known)
    try:
        exec(compile(BODY, SCRIPT, "exec"), known)
    except ValueError as error:
        files = [one.filename for one in traceback.extract_tb(error.__traceback__)]
        assert training_loops.__file__ in files
        print_error(error, SCRIPT)
    printed = capsys.readouterr().err
    assert [line.split(", line ")[1] for line in printed.splitlines() if "File " in line] == [
        "5, in <module>",
        "4, in through",
        "2, in broken",
    ]
    assert printed.endswith("ValueError: clip 3\n")
