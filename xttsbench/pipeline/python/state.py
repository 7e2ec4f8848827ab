"""Whether a Python function keeps state, draws random numbers or tells the time.

State is what parallel calls, calls in other processes, fewer calls or another order would change. Functions are read
from their source, without running them, and followed into the user's own functions that they call. Libraries are taken
at their word. What the call makes itself may be changed at will; what was there before may not. A memo that
``functools.lru_cache`` keeps is harmless; a dictionary that is filled by hand is state, for it is one to the eye.

What a function only reads and other code changes (an epoch that a callback sets) does not show in a look at the data,
during which no training runs. It is read from the source of the function's file: another function there, or the file
itself in its own loop, that changes the same variable, or another method of the same class that sets the attribute.
Code that only sets things up
(:mod:`xttsbench.pipeline.python.set_up`) and code that the function itself runs do not count.
"""

from __future__ import annotations

import ast
import functools
import os
import types
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from xttsbench import owners
from xttsbench.pipeline import source
from xttsbench.pipeline.definitions import (
    LOOPS,
    Definition,
    above,
    definition,
    definitions,
    first_line,
    parameter_names,
    place,
    tree_of,
    within,
)
from xttsbench.pipeline.python.bytecode import from_bytecode
from xttsbench.pipeline.python.mutators import MUTATORS
from xttsbench.pipeline.python.reading import Reader
from xttsbench.pipeline.python.set_up import set_up_of
from xttsbench.pipeline.python.values import LOCAL, Value, special_methods
from xttsbench.records.pipeline import Setting

_BETWEEN_EPOCHS: Final = frozenset({"on_epoch_begin", "on_epoch_end"})
"""Methods of a Keras ``PyDataset`` that Keras calls between epochs, whoever else does."""


@dataclass(frozen=True, slots=True)
class _Change:
    """One place where a function, or the file outside of its functions, changes something that may outlive a call."""

    name: str  # of the variable, or of the attribute of ``self``
    owner: Any  # the function, or the tree of the whole file, that the variable belongs to; the class, for an attribute
    function: Any  # or the tree
    line: int

    @property
    def function_name(self) -> str:
        return getattr(self.function, "name", "<lambda>")

    def place(self, file: str) -> str:
        """Phrase for where it is, by a function of that name if there is one."""
        at = f"{os.path.basename(file)}:{self.line}"
        return at if isinstance(self.function, ast.Module) else f"{self.function_name}() at {at}"


def _changed_variable(code: CodeType, name: str, own: Collection[CodeType]) -> str | None:
    """Phrase for other code of the file that changes a global or captured variable; ``None`` for none.

    ``code`` is the function that reads it, ``own`` that of all that runs with it.
    """
    file, _ = place(code)
    reader = definition(code)
    if reader is None or name in _bound(reader):  # a part that was cut out of a function may read what is its own
        return None
    return _foreign(file, name, _owner(reader, name, file), own, "changes", reader=reader)


def _changed_attribute(kind: type, name: str, own: Collection[CodeType], *, within_epoch: bool = False) -> str | None:
    """Phrase for another method of a class that sets an attribute; ``None`` for none.

    ``own`` is the code that the reader runs.

    With ``within_epoch`` what Keras has a ``PyDataset`` change between epochs is left out.
    """
    of_keras = owners.is_keras(kind, "PyDataset", "Sequence")
    for one in kind.__mro__:
        file = next((place(method.__code__)[0] for method in vars(one).values() if source.is_users(method)), "")
        for node in ast.walk(tree_of(file)) if file else ():
            if isinstance(node, ast.ClassDef) and node.name == one.__name__:
                between = _called_by(node, _BETWEEN_EPOCHS) if within_epoch and of_keras else set()
                found = _foreign(file, name, node, own, "sets", between)
                if found is not None:
                    return found
    return None


def _foreign(
    file: str,
    name: str,
    owner: Any,
    own: Collection[CodeType],
    verb: str,
    leave_out: Collection[str] = (),
    reader: Definition | None = None,
) -> str | None:
    """The first change by code that the function does not run itself; none where its own code does it, too."""
    found = [change for change in _changes(file) if change.name == name and change.owner is owner]
    places = {place(code) for code in own}
    functions = [change.function for change in found if not isinstance(change.function, ast.Module)]
    if any((file, first_line(function)) in places for function in functions):
        return None  # state of its own, which is reported as such
    found = [one for one in found if one.function_name not in leave_out]
    if not found:
        return None
    set_up = set_up_of(file, own)
    others = (one for one in found if not set_up.has_run(one.line, one.function, reader))
    return next((f"{one.place(file)} {verb}" for one in others), None)


def _owner(node: Any, name: str, file: str) -> Any:
    """Scope that binds a name for a function that does not bind it itself: a function around it, or the file."""
    return next(
        (one for one in above(node) if isinstance(one, Definition) and name in _bound(one)),
        tree_of(file),
    )


@functools.lru_cache(maxsize=512)
def _bound(node: Any) -> frozenset[str]:
    names, declared = set(parameter_names(node)), set[str]()
    for one in within(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store) and not _of_comprehension(one):
            names.add(one.id)
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(one.name)
        elif isinstance(one, ast.Global | ast.Nonlocal):
            declared.update(one.names)
    return frozenset(names - declared)


@functools.lru_cache(maxsize=64)
def _changes(file: str) -> tuple[_Change, ...]:
    found = []
    tree = tree_of(file)
    for node in definitions(file):
        around = next((one for one in above(node) if isinstance(one, Definition | ast.ClassDef)), None)
        me = node.args.args[0].arg if isinstance(around, ast.ClassDef) and node.args.args else None
        for line, base, attribute in _changed(node):
            if attribute is not None and base == me:
                found.append(_Change(attribute, around, node, line))
            elif base not in _bound(node):
                found.append(_Change(base, _owner(node, base, file), node, line))
        found += _goes_on_changing(node)
    return (*found, *_goes_on_changing(tree))


def _goes_on_changing(body: Any) -> list[_Change]:
    """Changes by a function, or a file outside of its functions, of variables of its own, which outlive it in closures.

    One that is bound once, in no loop, is what it is before anybody can read it.
    """
    places: dict[str, list[int]] = {}
    for line, base, _ in _changed(body):
        places.setdefault(base, []).append(line)
    given = parameter_names(body) if isinstance(body, Definition) else ()
    loops = [(one.lineno, one.end_lineno or 0) for one in within(body) if isinstance(one, LOOPS)]
    found = []
    for name in places.keys() & (_bound(body) if isinstance(body, Definition) else places.keys()):
        once = len(places[name]) == 1 and name not in given
        if not once or any(first <= places[name][0] <= last for first, last in loops):
            found += [_Change(name, body, body, line) for line in places[name]]
    return found


def _changed(node: Any) -> Iterator[tuple[int, str, str | None]]:
    """Line, name, and attribute right after the name, of each change in a function."""
    for one in within(node):
        target: ast.expr | None = None
        attribute = None
        if isinstance(one, ast.Name | ast.Attribute | ast.Subscript) and isinstance(one.ctx, ast.Store | ast.Del):
            target = one
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in MUTATORS:
            target = one.func.value
        if isinstance(one, ast.Call) and one.args and _shuffles(one.func):
            target = one.args[0]
        while isinstance(target, ast.Attribute | ast.Subscript):
            attribute = target.attr if isinstance(target, ast.Attribute) else attribute
            target = target.value
        if isinstance(target, ast.Name) and not _of_comprehension(target):
            yield one.lineno, target.id, attribute


def _of_comprehension(node: Any) -> bool:
    """Whether a name is what a comprehension goes through, which is gone behind it."""
    around = next(one for one in above(node) if not isinstance(one, ast.Tuple | ast.List | ast.Starred))
    return isinstance(around, ast.comprehension)


def _shuffles(node: ast.expr) -> bool:
    """Whether a method of Python's or NumPy's generators changes its first argument; those of datasets do not."""
    owner = node.value if isinstance(node, ast.Attribute) and node.attr == "shuffle" else None
    name = getattr(owner, "attr", getattr(owner, "id", "")).lower()
    return "random" in name or "rng" in name


def _called_by(kind: ast.ClassDef, names: Collection[str]) -> set[str]:
    methods = {one.name: one for one in kind.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in found and name in methods:
            calls = [one.func for one in ast.walk(methods[name]) if isinstance(one, ast.Call)]
            waiting.extend(one.attr for one in calls if isinstance(one, ast.Attribute))
        found.add(name)
    return found


@dataclass(frozen=True, slots=True)
class PythonState:
    """Effects of a Python function, each a phrase with the place; ``None`` where nothing was found."""

    state: str | None = None
    random: str | None = None
    """Random numbers that no state of the function's own explains, or the time of day in its result."""
    reads: str | None = None  # what it only reads, and other code changes
    reads_within_epoch: str | None = None  # the same without what Keras has a ``PyDataset`` change between epochs
    settings: tuple[Setting, ...] = ()  # at whose values something of this is not there

    @property
    def kinds(self) -> tuple[bool, ...]:
        """Whether there is state, randomness, something that others change, and that within an epoch."""
        return tuple(one is not None for one in (self.state, self.random, self.reads, self.reads_within_epoch))


_NOTHING: Final = PythonState().kinds


class _Assuming(Reader):
    """Passes over functions that the user says are pure, by their names after their module or file: ``data.load``."""

    def __init__(self, settled: Collection[str] | None, assumed: Collection[str]) -> None:
        super().__init__(settled)
        self._assumed = frozenset(assumed)
        self.names: dict[str, str] = {}
        """Names by which the functions that were met can be assumed to be pure, each to its shortest."""

    def function(self, function: Any, given: dict[str, Value] | None = None) -> Value:
        """Read a function, unless it is assumed to be pure."""
        inner = getattr(function, "__func__", function)
        if isinstance(inner, types.FunctionType):
            stem = os.path.basename(place(inner.__code__)[0]).removesuffix(".py")
            names = inner.__qualname__, inner.__name__
            own = {f"{module}.{name}" for module in (inner.__module__, stem) for name in names}
            self.names |= dict.fromkeys(own, f"{stem}.{inner.__name__}")
            if self._assumed & own:
                return LOCAL
        return super().function(function, given)


def names_of(function: Any) -> Mapping[str, str]:
    """Names by which a user's function, and those that it calls, can be assumed to be pure, each to the shortest."""
    reader = _Assuming(None, ())
    _read(_unwrapped(function), reader)
    return reader.names


def python_state(function: Any, *, assumed: Collection[str] = ()) -> PythonState:
    """State and randomness of a user's function, method, partial, callable object or memoised function.

    Functions that are ``assumed`` to be pure (``module.function``) are not read.

    What lies only in branches that settings turn off does not count; those settings are named, as few as suffice.
    """
    function = _unwrapped(function)  # what is bound by a partial, and that there is a memo, counts
    whole = _state(function, _Assuming((), assumed))
    if whole.kinds == _NOTHING:
        return whole
    best = _state(function, _Assuming(None, assumed))
    if best.kinds == whole.kinds:
        return whole
    names = {one.name for one in best.settings}
    for name in sorted(names):
        without = _state(function, _Assuming(names - {name}, assumed))
        if without.kinds == best.kinds:
            best, names = without, names - {name}
    return best


def _state(function: Any, reader: Reader) -> PythonState:
    inner, reader = called(function), _read(function, reader)
    first: dict[str, str] = {}
    for effect in reader.effects:
        first.setdefault("random" if effect.kind == "clock" else effect.kind, effect.text)
    if isinstance(function, functools._lru_cache_wrapper) and "random" in first:
        first.setdefault("state", f"{inner.__name__}() keeps in a memo what it has drawn at random")
    file = place(reader.own[0])[0] if reader.own else ""
    reads = [first.get("read") or changed_elsewhere(reader, file, within_epoch=only) for only in (False, True)]
    return PythonState(first.get("state"), first.get("random"), reads[0], reads[1], _settings(inner, reader))


def _settings(function: Any, reader: Reader) -> tuple[Setting, ...]:
    of_object = isinstance(function, types.MethodType)
    first = next(iter(source.parameters_of(function.__func__)), "") if of_object else ""
    kinds = tuple(kind.__name__ for kind in type(function.__self__).__mro__[:-1]) if of_object else ()
    return tuple(
        Setting(
            name=one.name,
            value=repr(one.value),
            file=one.file,
            line=one.line,
            owners=kinds if one.name.partition(".")[0] == first else (),
        )
        for one in reader.conditions.assumed
    )


def state_effects(function: Any) -> tuple[str, ...]:
    """All state that a function keeps, as for :func:`python_state`, each in words with its place."""
    return tuple(effect.text for effect in _read(_unwrapped(function)).effects if effect.kind == "state")


def _read(function: Any, reader: Reader | None = None) -> Reader:
    reader, inner = reader or Reader(), called(function)
    if inner is not None:
        try:
            if isinstance(function, functools.partial):
                reader.partial(function)
            for one in reader.function(inner).objects:  # which TensorFlow iterates where the function is a generator's
                for method in special_methods(one, ("__iter__", "__next__", "__getitem__")):
                    reader.function(method)
        except Exception:  # objects of a user's may raise whatever they like when they are looked at
            reader.effects.extend(from_bytecode(inner))
    return reader


def changed_elsewhere(reader: Reader, file: str, *, within_epoch: bool = False) -> str | None:
    """Phrase for state that was read in a ``file`` and that other code changes; see :func:`_changed_attribute`."""
    for (code, name), text in reader.effects.variables.items():
        if change := _changed_variable(code, name, reader.own):
            return f"{text}, which {change}"
    for (kind, name), text in reader.effects.attributes.items():
        change = _changed_attribute(kind, name, reader.own, within_epoch=within_epoch)
        if change := change or set_up_of(file, reader.own).later_setter(name, ()):
            return f"{text}, which {change}"
    for one in reader.conditions.assumed:
        name = one.name.rpartition(".")[2]
        if change := set_up_of(one.file, reader.own).later_setter(name, one.held_by):
            return f"{os.path.basename(one.file)}:{one.line} asks for {name!r}, which {change}"
    return None


def called(function: Any) -> Any:
    """The function or bound method that a call runs first, TensorFlow's wrappers taken off but nobody else's.

    A wrapper of the user's may keep the state itself, so ``__wrapped__`` is not followed.
    """
    for _ in range(20):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.FunctionType) and _is_wrapper(function):
            inner = _unwrapped(function)
            if inner is function:
                return None
            function = inner
        elif isinstance(function, types.FunctionType | types.MethodType):
            return function
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            call = source.call_of(function)
            return types.MethodType(call, function) if isinstance(call, types.FunctionType) else None
    return None


def _is_wrapper(function: types.FunctionType) -> bool:
    """Whether TensorFlow or we made a function; AutoGraph's wrapper of a method has the module of what it wraps."""
    return source.is_tensorflow(function) or owners.owner(place(function.__code__)[0]) in ("framework", "ours")


def _unwrapped(function: Any) -> Any:
    """The object that TensorFlow's wrappers, such as those of AutoGraph, call; itself where there is none."""
    for _ in range(20):
        if not (isinstance(function, types.FunctionType) and _is_wrapper(function)):
            break
        inner = getattr(function, "__wrapped__", None) or source.cells(function).get("func")
        if inner is None:
            break
        function = inner
    return function
