"""``tests/scripts.py``, which here leaves out what is measured once the script is over."""

import runpy

from xttsbench.worker.script.process import Process

Process._measure_afterwards = lambda self: None
runpy.run_module("tests.scripts", run_name="__main__")
