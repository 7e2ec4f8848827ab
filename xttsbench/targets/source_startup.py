"""Settings that TensorFlow reads once, where the source gives them too late, in vain, or against one another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from xttsbench.records.source_fact import SourceFact
from xttsbench.targets.source_names import Source, argument

_AT_IMPORT: Final = frozenset(
    {"TF_ENABLE_ONEDNN_OPTS", "TF_USE_LEGACY_KERAS", "TF2_BEHAVIOR", "TF_CPP_MIN_LOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL"}
    | {"KERAS_BACKEND", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LD_LIBRARY_PATH"}
)
"""Read when TensorFlow, or the NumPy that it imports, is loaded."""
_AT_START: Final = frozenset(
    {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "TF_FORCE_GPU_ALLOW_GROWTH"}
    | {"TF_GPU_ALLOCATOR", "TF_GPU_THREAD_MODE", "TF_GPU_THREAD_COUNT"}
    | {"TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_XLA_FLAGS"}
)
"""Read when devices are set up, which the first op does. ``XLA_FLAGS`` is not among them: it is read at the first
compilation by XLA, so that an op before it does no harm (tried on TensorFlow 2.21)."""
_OF_LOGGING: Final = ("TF_CPP_",)
_STARTS: Final = (
    "tensorflow.constant",
    "tensorflow.Variable",
    "tensorflow.convert_to_tensor",
    "tensorflow.zeros",
    "tensorflow.ones",
    "tensorflow.fill",
    "tensorflow.range",
    "tensorflow.cast",
    "tensorflow.matmul",
    "tensorflow.reduce_sum",
    "tensorflow.reduce_mean",
    "tensorflow.random.normal",
    "tensorflow.random.uniform",
    "tensorflow.data.Dataset.from_tensor_slices",
    "tensorflow.data.Dataset.from_tensors",
    "tensorflow.data.Dataset.range",
    "tensorflow.data.Dataset.list_files",
    "tensorflow.data.TFRecordDataset",
    "tensorflow.data.TextLineDataset",
    "tensorflow.config.list_logical_devices",
    "tensorflow.config.experimental.list_logical_devices",
    "tensorflow.test.gpu_device_name",
    "tensorflow.test.is_gpu_available",
    "tensorflow.distribute.MirroredStrategy",
)
"""Calls after which the devices are set up, so that they cannot be set any more; others may do so too."""
_THREADS: Final = (
    "tensorflow.config.threading.set_inter_op_parallelism_threads",
    "tensorflow.config.threading.set_intra_op_parallelism_threads",
)
_GROWTH: Final = "tensorflow.config.experimental.set_memory_growth"
_LIMITS: Final = (
    "tensorflow.config.set_logical_device_configuration",
    "tensorflow.config.experimental.set_virtual_device_configuration",
)


def late_environment(source: Source, *, imported_before: bool) -> Iterator[SourceFact]:
    """Variables that are set after TensorFlow has read them.

    Args:
        source: the module.
        imported_before: TensorFlow was there before the module was loaded, so that also what is set before its own
            import came too late here, and only here.
    """
    loaded = _first_import(source)
    for node, name in _variables(source):
        if name in _AT_IMPORT:
            inside = source.in_function(node) and not _imports_after(source, node)
            if loaded is not None and (inside or (not source.in_function(node) and node.lineno > loaded.lineno)):
                where = "inside a function, after" if inside else f"after line {loaded.lineno}, the import of"
                detail = (
                    f"{name} is set {where} {'the import of ' if inside else ''}TensorFlow, which has read it by then"
                )
                yield source.fact("late-environment", node, detail)
            elif imported_before and not name.startswith(_OF_LOGGING):
                detail = f"{name} is set before TensorFlow is imported, but here TensorFlow had been imported already"
                yield source.fact("own-environment", node, detail)
        elif name in _AT_START and (start := _started(source, node)):
            detail = f"{name} is set after line {start.lineno} has set up the devices, which is when it is read"
            yield source.fact("late-environment", node, detail)


def late_threads(source: Source) -> Iterator[SourceFact]:
    """Thread settings after an op has run: TensorFlow raises RuntimeError, which code around it may hide."""
    for call, name in source.calls():
        if name in _THREADS and (start := _started(source, call)):
            threads = source.integer(argument(call, 0, "num_threads"))
            wanted = f" ({threads} wanted)" if threads is not None else ""
            detail = f"the threads{wanted} are set after line {start.lineno} has set up the devices: RuntimeError"
            hidden = any(isinstance(around, ast.Try) and around.handlers for around in source.ancestors(call))
            yield source.fact("late-threads", call, detail + (", which is caught: nothing changes" if hidden else ""))


def growth_with_limit(source: Source) -> Iterator[SourceFact]:
    """Memory growth and a memory limit for the same GPUs: TensorFlow takes one of them."""
    calls = list(source.calls())
    limits = [call for call, name in calls if name in _LIMITS and _has_limit(source, call)]
    for call, name in calls:
        enable = argument(call, 1, "enable")
        if name != _GROWTH or (isinstance(enable, ast.Constant) and enable.value is False):
            continue
        for limit in limits:
            if source.scope(limit) is not source.scope(call) or _exclusive(source, call, limit):
                continue
            if limit.lineno < call.lineno:
                detail = f"line {limit.lineno} gives the GPU a memory limit, after which growth raises ValueError"
            else:
                detail = f"line {limit.lineno} also gives a memory limit; with it TensorFlow takes all of it at once"
            yield source.fact("growth-with-limit", call, detail)
            break


def _variables(source: Source) -> Iterator[tuple[ast.expr, str]]:
    """Places that set an environment variable, with its name."""
    for node in source.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if source.dotted(node.value) == "os.environ" and (name := _text(source, node.slice)):
                yield node, name
        elif isinstance(node, ast.Call):
            dotted = source.dotted(node.func) or ""
            if dotted in ("os.environ.setdefault", "os.putenv", "os.environ.__setitem__") and node.args:
                if name := _text(source, node.args[0]):
                    yield node, name
            elif dotted == "os.environ.update":
                yield from ((node, word.arg) for word in node.keywords if word.arg)
                for given in node.args:
                    keys = given.keys if isinstance(given, ast.Dict) else []
                    yield from ((node, name) for key in keys if key is not None and (name := _text(source, key)))


def _text(source: Source, node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        values = source.values(node)
        if len(values) == 1 and isinstance(values[0], ast.Constant) and isinstance(values[0].value, str):
            return values[0].value
    return None


def _first_import(source: Source) -> ast.stmt | None:
    """The first import of TensorFlow or Keras that runs when the module is loaded."""
    found = [node for node in _imports(source) if not source.in_function(node)]
    return min(found, key=lambda node: node.lineno, default=None)


def _imports(source: Source) -> Iterator[ast.stmt]:
    for node in source.nodes:
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        else:
            continue
        if any(name.partition(".")[0] in ("tensorflow", "keras") for name in names) and not _for_types(source, node):
            yield node


def _for_types(source: Source, node: ast.AST) -> bool:
    """Whether an import is for type checkers only."""
    return any(isinstance(at, ast.If) and "TYPE_CHECKING" in ast.unparse(at.test) for at in source.ancestors(node))


def _imports_after(source: Source, node: ast.expr) -> bool:
    """Whether the node's own function imports TensorFlow further down, as a launcher does."""
    scope = source.scope(node)
    return any(source.scope(found) is scope and found.lineno > node.lineno for found in _imports(source))


def _started(source: Source, node: ast.expr) -> ast.Call | None:
    """The call before this line, in the same body, that surely has set up the devices."""
    scope = source.scope(node)
    found = [
        call
        for call, name in source.calls()
        if name.startswith(_STARTS)
        and name.split("(")[0] in _STARTS
        and call.lineno < node.lineno
        and source.scope(call) in (scope, source.tree)
        and not _exclusive(source, call, node)
    ]
    return min(found, key=lambda call: call.lineno, default=None)


def _has_limit(source: Source, call: ast.Call) -> bool:
    return any(
        isinstance(node, ast.keyword)
        and node.arg == "memory_limit"
        and not (isinstance(node.value, ast.Constant) and node.value.value is None)
        for given in (*call.args, *(word.value for word in call.keywords))
        for one in _followed(source, given)
        for node in ast.walk(one)
    )


def _followed(source: Source, node: ast.expr) -> list[ast.expr]:
    return source.values(node) or [node] if isinstance(node, ast.Name) else [node]


def _exclusive(source: Source, first: ast.AST, second: ast.AST) -> bool:
    """Whether no run goes through both: other branches of one ``if`` or ``try``, or the earlier one leaves."""
    arms = _arms(source, first), _arms(source, second)
    if any(at in arms[1] and arms[1][at] != arm for at, arm in arms[0].items()):
        return True
    for mine, other in (arms, arms[::-1]):
        for at, arm in mine.items():
            body = at.body if arm == "body" else at.orelse if arm == "orelse" else []
            if at not in other and body and isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break):
                return True
    return False


def _arms(source: Source, node: ast.AST) -> dict[ast.If | ast.Try, str]:
    """By ``if`` and ``try`` around the node, in which part of it the node is."""
    found: dict[ast.If | ast.Try, str] = {}
    child = node
    for parent in source.ancestors(node):
        if isinstance(parent, ast.If):
            found[parent] = "body" if child in parent.body else "orelse" if child in parent.orelse else "test"
        elif isinstance(parent, ast.Try):
            found[parent] = "handlers" if child in parent.handlers else "body"
        child = parent
    return found
