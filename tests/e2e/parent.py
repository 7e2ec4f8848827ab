"""A parent that cannot import TensorFlow, and one that hears Ctrl-C though it was started in the background."""

from __future__ import annotations

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
