"""Pipelines by hand, for the tests of what is predicted and proposed."""

from __future__ import annotations

from typing import Any

from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction

ENVIRONMENT = {"cpu": {"allowed_cpus": 2.0}, "memory": {"total_bytes": 8e9, "limit_bytes": None}}
RANGE: dict[str, Any] = {"op": "RangeDataset", "elements_per_batch": 8.0, "cost_s": 0.0, "cardinality": 1000}
BATCH: dict[str, Any] = {"op": "BatchDatasetV2", "batch_size": 8, "cost_s": 0.0}
PYTHON: dict[str, Any] = {
    "op": "MapDataset",
    "stateful": True,
    "python_functions": ("t",),
    "side_effects": True,
    "cost_s": 0.08,
}
DECODE: dict[str, Any] = {
    "op": "MapDataset",
    "cost_s": 0.08,
    "cpu_s": 0.08,
    "cardinality": 1000,
    "element_bytes": 1000.0,
    "elements_per_batch": 8.0,
}


def python(gil: str, *, cpu_s: float = 0.0, wall_s: float = 0.01, calls: int = 8, **fields: Any) -> PythonFunction:
    given = {"token": "t", "kind": "numpy_function", "name": "f"} | fields
    return PythonFunction(gil=gil, call_time_s=wall_s, call_cpu_s=cpu_s, calls_per_batch=calls, **given)


def pipeline(*ops: dict[str, Any], **fields: Any) -> Pipeline:
    """Each op reads the one before it, and is named by its number."""
    made = [
        PipelineOp(**({"name": str(number), "inputs": (str(number - 1),) if number else ()} | given))
        for number, given in enumerate(ops)
    ]
    return Pipeline(ops=tuple(made), **fields)
