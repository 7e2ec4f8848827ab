"""A process that has imported xttsbench and forks commands of it, or executes Python: starting each anew takes seconds.

A line of JSON on standard input is a command; its answers are the process id and, once that has ended, how it did.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any


class Forking:
    """The process, for the tests; it ends with the context."""

    def __enter__(self) -> Forking:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment | {"PYTHONHASHSEED": "0"},
        )
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.communicate(timeout=30)

    def start(self, arguments: list[str], directory: Path, files: dict[int, Path], *, python: bool) -> int:
        """Begin ``xttsbench ARGUMENTS``, or ``python ARGUMENTS``, and return its process id."""
        assert self._process.stdin is not None
        descriptors = {number: str(path) for number, path in files.items()}
        job = {"arguments": arguments, "directory": str(directory), "files": descriptors, "python": python}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> int:
        """Wait for the end of what was begun last; returns its exit code, negative for a signal."""
        return self._answer()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


def _become(job: dict[str, Any]) -> None:
    os.setpgid(0, 0)
    os.chdir(job["directory"])
    for number, path in job["files"].items():
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND if number in ("1", "2") else os.O_RDONLY
        opened = os.open(path, flags)
        os.dup2(opened, int(number))
        os.close(opened)
    if job["python"]:
        os.execv(sys.executable, [sys.executable, *job["arguments"]])
    sys.argv = ["xttsbench", *job["arguments"]]
    main()


if __name__ == "__main__":
    sys.path.pop(0)
    import xttsbench.reporting.page
    import xttsbench.workflows.watch  # noqa: F401
    from xttsbench.cli import main

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(json.loads(line))
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
