"""How a child that looks through TensorFlow is followed: one that crashes, raises, hangs, and what it printed last."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import still_running
from xttsbench.workflows.doctor import ask_driver, look

ENDS = {
    "import os, sys\nprint('undefined symbol: _ZN3tsl', file=sys.stderr, flush=True)\nos.abort()": (
        "killed by SIGABRT",
        "undefined symbol: _ZN3tsl",
    ),
    "import os, signal\nos.kill(os.getpid(), signal.SIGILL)": ("killed by SIGILL", ""),
    "raise ImportError('libstdc++.so.6: version `GLIBCXX_3.4.99\\' not found')": (
        "ended with exit code 1",
        "ImportError: libstdc++.so.6: version `GLIBCXX_3.4.99' not found",
    ),
    "import sys; sys.exit(3)": ("ended with exit code", ""),
}


@pytest.fixture
def tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is imported in TensorFlow's place."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "tensorflow.py"


@pytest.mark.parametrize("source", ENDS)
def test_a_tensorflow_that_cannot_be_imported_leaves_how_it_ended_and_its_last_words(tensorflow, source) -> None:
    tensorflow.write_text(source)
    seen = look(20)
    ended, words = ENDS[source]
    assert seen.stage == "import"
    assert seen.ended is not None
    assert seen.ended.startswith(ended)
    assert words in seen.last_words


def test_notices_of_tensorflow_are_no_last_words(tensorflow) -> None:
    notice = "2026-11-23 05:00:00.1: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on."
    tensorflow.write_text(
        f"import os, sys\nfor said in ('it broke', {notice!r}):\n    print(said, file=sys.stderr)\nraise SystemExit(9)"
    )
    assert look(20).last_words == "it broke"


def test_one_that_hangs_is_ended_with_all_that_it_started(tensorflow, tmp_path) -> None:
    pid = tmp_path / "pid"
    tensorflow.write_text(
        "import subprocess, time\n"
        f"open({str(pid)!r}, 'w').write(str(subprocess.Popen(['sleep', '60']).pid))\n"
        "time.sleep(60)"
    )
    began = time.monotonic()
    seen = look(1.5)
    assert (seen.stage, seen.ended) == ("import", "still busy after 1.5 s")
    assert time.monotonic() - began < 10
    if pid.exists():  # it had come so far
        assert still_running([int(pid.read_text())], 10.0) == []


def test_one_whose_parent_died_while_it_was_started_does_not_look(tensorflow, tmp_path) -> None:
    tensorflow.write_text("print('looked', flush=True)")
    gone = subprocess.Popen(["true"])
    gone.wait()
    with (tmp_path / "told").open("wb") as told:
        command = [sys.executable, "-m", "xttsbench.worker.sight", str(told.fileno()), str(gone.pid), "tensorflow"]
        ended = subprocess.run(command, pass_fds=[told.fileno()], capture_output=True, check=False, timeout=30)
    assert (ended.returncode, ended.stdout, (tmp_path / "told").read_bytes()) == (1, b"", b"")


def test_what_tensorflow_says_of_libraries_is_read(tensorflow) -> None:
    tensorflow.write_text(
        "import os, sys\n"
        "for said in (\"Could not load dynamic library 'libcudnn.so.9'; dlerror: libcudnn.so.9: no such file\",\n"
        "             \"Could not load dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: no such file\",\n"
        "             'failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)'):\n"
        "    print('I0000 00:00:1 9 x.cc:1] ' + said, file=sys.stderr)\n"
        "sys.stderr.flush()\n"
        "os.abort()\n"
    )
    seen = look(20)
    assert seen.missing == {"libcudnn.so.9": "libcudnn.so.9: no such file"}
    assert seen.complaint == "Failed call to cuInit: UNKNOWN ERROR (303)"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build a driver's library that is ill")
@pytest.mark.parametrize(
    ("body", "patience_s", "ended"),
    [("sleep(60)", 2, "still busy after 2 s"), ("abort()", 20, "killed by SIGABRT")],
    ids=["hangs", "crashes"],
)
def test_a_driver_that_does_not_come_back_is_the_reason_for_no_gpu(
    tmp_path, monkeypatch, body, patience_s, ended
) -> None:
    source = tmp_path / "ill.c"
    source.write_text(
        f"#include <stdlib.h>\n#include <unistd.h>\nint nvmlInitWithFlags(unsigned f) {{ {body}; return 0; }}"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libnvidia-ml.so.1"), str(source)], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    found = ask_driver(patience_s)
    assert (found.ill, found.gpus) == (True, ())
    assert found.reason == f"the process that asked the NVIDIA driver was {ended}"
