"""``python -m xttsbench.worker.script``, which here leaves out what is measured once the script is over."""

import runpy

from xttsbench.worker.script.process import Process

Process._measure_afterwards = lambda self: None
runpy.run_module("xttsbench.worker.script", run_name="__main__")
