"""Python and ``xttsbench`` as a user starts them; and programs that stand for ``xttsbench``: a parent that cannot
import TensorFlow, one that hears Ctrl-C though it was started in the background, and one that imports TensorFlow once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python(
    *arguments: object, cwd: Path | None = None, timeout_s: float = 400, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python from a checkout, with these ``variables`` in its environment, to its end."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "100"} | variables
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )


WITHOUT_TENSORFLOW = """
import sys

class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "keras"):
            raise ImportError(f"the parent imported {name}")

sys.meta_path.insert(0, Refuses())
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it comes ignored
from xttsbench.cli import main
main()
"""
# What a shell starts in the background has Ctrl-C ignored, and would pass that on.
WITH_CTRL_C = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from xttsbench.cli import main; main()"
)

SHARED = """
import sys
from xttsbench.execution.helper import Helper
from xttsbench.workflows.measure import session

class Shared:
    # Stands for the helper of a block, and is the one of all blocks that want it like that.
    started = {}

    def __init__(self, **options):
        self.wanted, self.options = repr(options), options

    def __getattr__(self, name):
        return getattr(Shared.started[self.wanted], name)

    def __enter__(self):
        known = Shared.started.get(self.wanted)
        if known is None or known.exit_code() is not None:
            known = Shared.started[self.wanted] = Helper(**self.options)
            known.__enter__()
            known.wait_ready()
        return self

    def __exit__(self, *_):
        pass

    def wait_ready(self):
        pass

session.Helper = Shared

def end():
    for helper in Shared.started.values():
        helper.__exit__(None, None, None)
"""
# Each block of trials has a helper of its own, which is shown in tests/unit/workflows; each takes seconds to start.
ON_ONE_HELPER = (
    SHARED
    + """
from xttsbench.cli import main
try:
    main()
finally:
    end()
"""
)
