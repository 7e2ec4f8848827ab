"""The Python doors: ``xttsbench.diagnose(target)`` and ``xttsbench.optimize(target)``."""

from __future__ import annotations

from xttsbench.api.diagnosing import diagnose
from xttsbench.api.naming import importable_name
from xttsbench.api.optimizing import optimize

__all__ = ["diagnose", "importable_name", "optimize"]
