"""Mistakes in the text of the user's own modules: code that never has its intended effect, whatever the data.

The syntax tree is read, never the raw text, so that a comment or a string says nothing. Nothing is run. What is found
is a fact with a place; whether it costs anything is for the rules and the measurements.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import libcst as cst
from libcst.helpers import get_full_name_for_node

from xttsbench.files import owner
from xttsbench.records.code import SourceFact
from xttsbench.targets.source.flow import exclusive
from xttsbench.targets.source.module import Module, argument_of, is_name
from xttsbench.targets.source.options import (
    Known,
    autotune_arithmetic,
    dead_options,
    known_options,
    pool_sizes,
    unapplied_options,
    unused_datasets,
)
from xttsbench.targets.spec import TargetSpec

MAX_FILES: Final = 200
MAX_BYTES: Final = 1 << 19
"""Largest total size of the parsed files, in bytes; parsing as much takes five seconds."""
_WORDS: Final = re.compile(  # a module without any of these has no fact, and need not be taken apart to know that
    "tensorflow|AUTOTUNE|environ|putenv|npy|frombuffer|fromfile|memmap|with_options|padded_batch|ragged_batch|bucket_by"
)

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def scan_text(
    file: str, text: str, *, options: Known | None = None, imported_before: bool = False, is_main: bool = False
) -> list[SourceFact]:
    """The facts of one module, by line; none where the text is not Python.

    ``options`` is what ``tf.data.Options`` has (:func:`known_options`); ``None`` judges no name of one. TensorFlow may
    have been imported before the module, and the module may be the target's own: then nobody imports from it.
    """
    if not _WORDS.search(text):
        return []
    try:
        module = Module(file, text)
        found = [
            *autotune_arithmetic(module),
            *(dead_options(module, options) if options is not None else ()),
            *pool_sizes(module),
            *unapplied_options(module, is_main=is_main),
            *unused_datasets(module),
            *late_environment(module, imported_before=imported_before),
            *late_threads(module),
            *growth_with_limit(module),
            *fixed_npy_header(module),
        ]
    except (SyntaxError, ValueError, RecursionError):
        return []
    distinct = {(fact.kind, fact.line, fact.detail): fact for fact in found}
    return sorted(distinct.values(), key=lambda fact: (fact.line, fact.kind))


def scan_loaded(
    folder: str, main_file: str, *, entry: str | None = None, imported_before: bool = True, makers: Iterable[str] = ()
) -> list[SourceFact]:
    """The facts of the user's own modules that are loaded now: the target's file, the makers, those under its folder.

    Libraries and this package are left out, and so is what is beyond 200 files or 512 KB; a file that cannot be read
    has no fact. TensorFlow is not imported; where it is loaded, its options are asked for.

    Args:
        folder: the target's.
        main_file: the target's own; it need not be among the modules.
        entry: the callable in it; facts in code that it cannot come to are left out. ``None`` keeps all, as for a
            script.
        imported_before: TensorFlow had been imported before the target was, as in the helper's forks.
        makers: files of the user's from which ops of the pipeline come, wherever they lie.
    """
    options = _options()
    main = os.path.realpath(main_file)
    found: list[SourceFact] = []
    texts: dict[str, str] = {}
    left = MAX_BYTES
    for file in _files(folder, main, makers):
        try:
            size = os.path.getsize(file)
            if size > left:
                continue
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
        left -= size if _WORDS.search(text) else 0
        try:
            found += scan_text(file, text, options=options, imported_before=imported_before, is_main=file == main)
        except Exception:  # a source that this reader cannot take must not cost its owner the measurement
            continue
        texts[file] = text
    return _reached(found, texts, main, entry) if found and entry is not None else found


def module_file(target: TargetSpec) -> str:
    """The target's own file: the one that it names, or that of the module, which is loaded; empty where it has none."""
    if target.kind == "file":
        return target.place
    file = getattr(sys.modules.get(target.place), "__file__", None)
    return file if isinstance(file, str) else ""


def _files(folder: str, main: str, makers: Iterable[str]) -> Iterator[str]:
    """Paths of the user's loaded modules, the target's own first and then the makers, each once."""
    top, own = os.path.realpath(folder), str(Path(__file__).resolve().parents[2])
    named = [path for path in (main, *map(os.path.realpath, makers)) if path.endswith(".py") and not _under(path, own)]
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    loaded = (os.path.realpath(file) for file in files if isinstance(file, str) and file.endswith(".py"))
    users = (path for path in loaded if _under(path, top) and owner(path) == "user")
    return itertools.islice(dict.fromkeys([*named, *users]), MAX_FILES)


def _under(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def _options() -> dict[str, Any] | None:
    tensorflow = sys.modules.get("tensorflow")
    try:
        return known_options(tensorflow.data.Options()) if tensorflow is not None else None
    except Exception:  # a TensorFlow that is half loaded: the target's own failure, told elsewhere
        return None


def _reached(facts: Iterable[SourceFact], texts: Mapping[str, str], main: str, entry: str) -> list[SourceFact]:
    """The facts in code that runs when the modules are loaded, or that the target's callable can come to.

    By names alone: a function or class is reached where code that is reached mentions its name. That takes in too much
    rather than too little; code that is looked up by a name put together at run time is missed.
    """
    definitions: dict[str, list[tuple[str, _Definition]]] = {}
    mentioned: list[str] = []
    for file, text in texts.items():
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in tree.body:
            _sort(node, file, definitions, mentioned)
    target = entry.partition(".")[0]
    if not any(file == main for file, _ in definitions.get(target, [])):
        return list(facts)  # the callable is made at run time: nothing can be told from names
    pending, known = [*mentioned, target], set[str]()
    while pending:
        if (name := pending.pop()) not in known:
            known.add(name)
            pending += [one for _, node in definitions.get(name, []) for one in _names(node)]
    missed = [place for name, places in definitions.items() if name not in known for place in places]
    lines = {(file, line) for file, node in missed for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    return [fact for fact in facts if (fact.file, fact.line) not in lines]


def _sort(
    node: ast.stmt, file: str, definitions: dict[str, list[tuple[str, _Definition]]], mentioned: list[str]
) -> None:
    """Put a statement of a module's top to the definitions, or its names to those that loading mentions."""
    if isinstance(node, _Definition):
        definitions.setdefault(node.name, []).append((file, node))
        for one in node.decorator_list:
            mentioned += _names(one)
            # A decorator may register it somewhere.
            mentioned.append(node.name)
    elif isinstance(node, ast.If) and "__main__" in ast.unparse(node.test):
        return  # not run where a callable is the target
    elif isinstance(node, ast.If | ast.Try | ast.With):
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.stmt | ast.ExceptHandler):
                for inner in part.body if isinstance(part, ast.ExceptHandler) else [part]:
                    _sort(inner, file, definitions, mentioned)
            else:
                mentioned += _names(part)
    elif not isinstance(node, ast.Import | ast.ImportFrom):
        mentioned += _names(node)


def _names(node: ast.AST) -> list[str]:
    found = []
    for one in ast.walk(node):
        match one:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.append(name)
            case ast.alias(name=name):
                found.append(name.rpartition(".")[2])
            case ast.Constant(value=str() as text) if text.isidentifier():
                found.append(text)
    return found


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
        found += [plain] if any(one.partition(".")[0] in ("tensorflow", "keras") for one in names) else []
    for one in module.of(cst.ImportFrom):
        name = get_full_name_for_node(one.module) if one.module is not None and not one.relative else None
        found += [one] if (name or "").partition(".")[0] in ("tensorflow", "keras") else []
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


_LENGTHS: Final = frozenset({80, 96, 128})  # what small headers come to: 128 since NumPy 1.14, 80 or 96 before
_READ_FILE: Final = "tensorflow.io.read_file"
_READS: Final = {_READ_FILE, "tensorflow.io.gfile.GFile", "tensorflow.io.FixedLengthRecordDataset"}
_DECODES: Final = {"tensorflow.io.decode_raw", "numpy.frombuffer", "numpy.fromfile", "numpy.memmap"}
_OFFSETS: Final = {"numpy.frombuffer": 3, "numpy.fromfile": 4, "numpy.memmap": 3}
_SUBSTR: Final = "tensorflow.strings.substr"


def fixed_npy_header(module: Module) -> Iterator[SourceFact]:
    """Bytes cut at a constant near the reading of ``.npy`` files, and text of no dimension that is sliced."""
    for call, name in module.calls:
        seeks = isinstance(call.func, cst.Attribute) and call.func.attr.value == "seek" and len(call.args) == 1
        position = 1 if name == _SUBSTR else 0 if seeks else _OFFSETS.get(name)
        given = None if position is None else argument_of(call, position, "pos" if name == _SUBSTR else "offset")
        at = module.integer(given)
        if at not in _LENGTHS:
            continue
        near = _near(module, call) if name == _SUBSTR else _names_npy(module)
        if near and (not seeks or _called(module, call) & _DECODES):
            yield module.fact("fixed-npy-header", call, _detail(at))
    for node in module.of(cst.Subscript):
        cut = node.slice[0].slice
        if len(node.slice) != 1 or not isinstance(cut, cst.Slice) or cut.step is not None or not module.reads(node):
            continue
        of = _origin(module, node.value)
        at = module.integer(cut.lower) if cut.lower is not None else None
        if of == "tensor":
            detail = "what tf.io.read_file gives has no dimension to slice: this raises; tf.strings.substr cuts it"
            yield module.fact("fixed-npy-header", node, detail)
        elif of == "bytes" and at in _LENGTHS and _near(module, node):
            yield module.fact("fixed-npy-header", node, _detail(at))


def _detail(at: int | None) -> str:
    return f"the header is taken to be {at} bytes; it grows with the shape, the type and the order that it names"


def _names_npy(module: Module) -> bool:
    text = (*module.of(cst.SimpleString), *module.of(cst.FormattedStringText))
    return any(".npy" in module.code(one) for one in text)


def _near(module: Module, node: cst.CSTNode) -> bool:
    """Whether the function around reads a file and decodes it, or the module names ``.npy`` files."""
    called = _called(module, node)
    does = [bool(called & {*_READS, "open", "read", "read_bytes"}), bool(called & _DECODES)]
    return all(does) or (any(does) and _names_npy(module))


def _called(module: Module, node: cst.CSTNode) -> set[str]:
    """Dotted names of what the function around a node calls, and of methods the last part too."""
    scope = module.scope(node)
    calls = [(call, name) for call, name in module.calls if module.scope(call) is scope]
    return {name for _, name in calls} | {
        call.func.attr.value for call, _ in calls if isinstance(call.func, cst.Attribute)
    }


def _origin(module: Module, node: cst.BaseExpression, depth: int = 4) -> str | None:
    """``tensor`` or ``bytes`` where the expression is a file's content, else ``None``."""
    if isinstance(node, cst.Call):
        if module.dotted(node.func) == _READ_FILE:
            return "tensor"
        method = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
        if method == "numpy" and isinstance(node.func, cst.Attribute):
            return "bytes" if _origin(module, node.func.value, depth) == "tensor" else None
        return "bytes" if method in ("read", "read_bytes") else None
    values = module.values(node) if isinstance(node, cst.Name) and depth else []
    return _origin(module, values[-1], depth - 1) if values else None
