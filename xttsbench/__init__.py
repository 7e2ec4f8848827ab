"""xttsbench finds why a TensorFlow training step takes as long as it does, and proves the cause by experiment.

``import xttsbench`` imports neither TensorFlow nor anything else that is slow; names are loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xttsbench.api import diagnose, optimize, read_monitor, read_report, watched
    from xttsbench.records.report import Report
    from xttsbench.targets.spec import Workload

__version__ = "0.2.0"
BUDGET_S = 300.0
"""Seconds for everything that a diagnosis or a search for fixes does, where none are given."""
__all__ = ["Report", "Workload", "__version__", "diagnose", "optimize", "read_monitor", "read_report", "watched"]

_HOMES = {
    "Report": "xttsbench.records.report",
    "Workload": "xttsbench.targets.spec",
    "diagnose": "xttsbench.api",
    "load_ipython_extension": "xttsbench.notebook",
    "optimize": "xttsbench.api",
    "read_monitor": "xttsbench.api",
    "read_report": "xttsbench.api",
    "watched": "xttsbench.api",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'xttsbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
