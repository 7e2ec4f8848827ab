"""Settings that come too late: variables after their import, threads after a first op, an epoch's order after reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst
from libcst.helpers import get_full_name_for_node

from xttsbench.owners import of_framework
from xttsbench.records.code import SourceFact
from xttsbench.targets.source.branches import exclusive
from xttsbench.targets.source.module import Module, argument_of, is_name

_AT_IMPORT: Final = frozenset(  # read when TensorFlow, or the NumPy that it imports, is loaded
    {"TF_ENABLE_ONEDNN_OPTS", "TF_USE_LEGACY_KERAS", "TF2_BEHAVIOR", "TF_CPP_MIN_LOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL"}
    | {"KERAS_BACKEND", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LD_LIBRARY_PATH"}
)
_AT_START: Final = frozenset(
    {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "TF_FORCE_GPU_ALLOW_GROWTH"}
    | {"TF_GPU_ALLOCATOR", "TF_GPU_THREAD_MODE", "TF_GPU_THREAD_COUNT"}
    | {"TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_XLA_FLAGS"}
)
"""Read when devices are set up, which the first op does. ``XLA_FLAGS`` is not among them: it is read at the first
compilation by XLA, so that an op before it does no harm (tried on TensorFlow 2.21)."""
_OF_LOGGING: Final = "TF_CPP_"
_STARTS: Final = frozenset(
    f"tensorflow.{name}"
    for name in (
        *("constant", "Variable", "convert_to_tensor", "zeros", "ones", "fill", "range", "cast", "matmul"),
        *("reduce_sum", "reduce_mean", "random.normal", "random.uniform", "distribute.MirroredStrategy"),
        *("data.Dataset.from_tensor_slices", "data.Dataset.from_tensors", "data.Dataset.range"),
        *("data.Dataset.list_files", "data.TFRecordDataset", "data.TextLineDataset"),
        *("config.list_logical_devices", "config.experimental.list_logical_devices"),
        *("test.gpu_device_name", "test.is_gpu_available"),
    )
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

_BASES: Final = ("tensorflow.keras.utils.PyDataset", "tensorflow.keras.utils.Sequence")
_NAMED_ONLY: Final = 1 << 10


def late_environment(module: Module, *, imported_before: bool) -> Iterator[SourceFact]:
    """Variables that are set after TensorFlow has read them.

    Where it had been imported before the module was loaded, what is set before the module's own import came too late as
    well, here and only here.
    """
    imports = _imports(module)
    loaded = next((module.line(one) for one in imports if not module.in_function(one)), None)
    for node, name in _variables(module):
        if name in _AT_IMPORT:
            line, scope, inside = module.line(node), module.scope(node), module.in_function(node)
            launches = any(module.scope(one) is scope and module.line(one) > line for one in imports)
            if loaded is not None and (not launches if inside else line > loaded):
                where = "inside a function, after the import" if inside else f"after line {loaded}, the import"
                detail = f"{name} is set {where} of TensorFlow, which has read it by then"
                yield module.fact("late-environment", node, detail)
            elif imported_before and not name.startswith(_OF_LOGGING):
                detail = f"{name} is set before TensorFlow is imported, but here TensorFlow had been imported already"
                yield module.fact("own-environment", node, detail)
        elif name in _AT_START and (start := _started(module, node)):
            detail = f"{name} is set after line {start} has set up the devices, which is when it is read"
            yield module.fact("late-environment", node, detail)


def late_threads(module: Module) -> Iterator[SourceFact]:
    """Thread settings after an op has run: TensorFlow raises RuntimeError, which code around it may hide."""
    for call, name in module.calls:
        if name in _THREADS and (start := _started(module, call)):
            threads = module.integer(argument_of(call, 0, "num_threads"))
            wanted = f" ({threads} wanted)" if threads is not None else ""
            detail = f"the threads{wanted} are set after line {start} has set up the devices: RuntimeError"
            hidden = any(isinstance(around, cst.Try) and around.handlers for around in module.ancestors(call))
            yield module.fact("late-threads", call, detail + (", which is caught: nothing changes" if hidden else ""))


def growth_with_limit(module: Module) -> Iterator[SourceFact]:
    """Memory growth and a memory limit for the same GPUs: TensorFlow takes one of them."""
    limits = [call for call, name in module.calls if name in _LIMITS and _has_limit(module, call)]
    for call, name in module.calls:
        if name != _GROWTH or is_name(argument_of(call, 1, "enable"), "False"):
            continue
        for limit in limits:
            if module.scope(limit) is module.scope(call) and not exclusive(module, call, limit):
                line, said = module.line(limit), "also gives a memory limit; with it TensorFlow takes all of it at once"
                if line < module.line(call):
                    said = "gives the GPU a memory limit, after which growth raises ValueError"
                yield module.fact("growth-with-limit", call, f"line {line} {said}")
                break


def early_workers(module: Module) -> Iterator[SourceFact]:
    """Each `on_epoch_begin` of a class that is given workers in the same file."""
    for kind in module.of(cst.ClassDef):
        methods = {one.name.value: one for one in kind.body.body if isinstance(one, cst.FunctionDef)}
        begin = methods.get("on_epoch_begin")
        if begin is None or not any(module.dotted(one.value) in _BASES for one in kind.bases):
            continue
        made = [call for call, name in module.calls if name == kind.name.value]
        made += [call for call in module.inside(kind, cst.Call) if module.code(call.func) == "super().__init__"]
        workers = max((module.integer(argument_of(call, _NAMED_ONLY, "workers")) or 0 for call in made), default=0)
        if workers > 1:  # Keras starts one only where it is to be a process
            detail = f"on_epoch_begin() of {kind.name.value} runs when its {workers} workers may have read already"
            yield module.fact("early-workers", begin, detail)


def _variables(module: Module) -> Iterator[tuple[cst.BaseExpression, str]]:
    for node in module.of(cst.Subscript):
        key = node.slice[0].slice
        if module.is_set(node) and module.dotted(node.value) == "os.environ" and isinstance(key, cst.Index):
            yield node, module.string(key.value) or ""
    for call, dotted in module.calls:
        if dotted in ("os.environ.setdefault", "os.putenv", "os.environ.__setitem__") and call.args:
            yield call, module.string(call.args[0].value) or ""
        elif dotted == "os.environ.update":
            for given in call.args:
                if given.keyword is not None:
                    yield call, given.keyword.value
                for pair in given.value.elements if isinstance(given.value, cst.Dict) else ():
                    yield call, (module.string(pair.key) if isinstance(pair, cst.DictElement) else None) or ""


def _imports(module: Module) -> list[cst.BaseSmallStatement]:
    """The imports of TensorFlow or Keras, those for type checkers left out."""
    found: list[cst.BaseSmallStatement] = []
    for plain in module.of(cst.Import):
        names = [get_full_name_for_node(one.name) or "" for one in plain.names]
        found += [plain] if any(map(of_framework, names)) else []
    for one in module.of(cst.ImportFrom):
        name = get_full_name_for_node(one.module) if one.module is not None and not one.relative else None
        found += [one] if of_framework(name) else []
    return sorted((one for one in found if not module.only_for_types(one)), key=module.start)


def _started(module: Module, node: cst.BaseExpression) -> int | None:
    """The line of the first call before this line, in the same body, that surely has set up the devices."""
    scopes = (module.scope(node), module.module_scope)
    return next(
        (
            module.line(call)
            for call, name in module.calls
            if name in _STARTS
            and module.line(call) < module.line(node)
            and module.scope(call) in scopes
            and not exclusive(module, call, node)
        ),
        None,
    )


def _has_limit(module: Module, call: cst.Call) -> bool:
    given = [one.value for one in call.args]
    followed = [value for one in given if isinstance(one, cst.Name) for value in module.values(one)]
    return any(
        one.keyword is not None and one.keyword.value == "memory_limit" and not is_name(one.value, "None")
        for value in (*given, *followed)
        for one in module.inside(value, cst.Arg)
    )
