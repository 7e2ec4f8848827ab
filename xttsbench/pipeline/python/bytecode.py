"""Effects of a Python function whose source is gone, from its bytecode: stores into what it has captured."""

from __future__ import annotations

import dis
import os
import types
from typing import Any, Final

from xttsbench.pipeline import source
from xttsbench.pipeline.definitions import place
from xttsbench.pipeline.python.effects import Effect
from xttsbench.pipeline.python.mutators import MUTATORS

_MAKES_FROZEN: Final = frozenset({"__dataclass_builtins_object__"})  # sets attributes of a new frozen dataclass
_LOADS: Final = ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")


def from_bytecode(function: Any) -> list[Effect]:
    """Effects of a function without source, from its bytecode: stores into captured variables."""
    function = getattr(function, "__func__", function)
    code, found, before = function.__code__, list[Effect](), list[dis.Instruction]()
    where = f"{code.co_name}() at {file_name(function)}:{place(code)[1]}"
    known = source.cells(function) | {name: function.__globals__.get(name) for name in code.co_names}
    for one in dis.get_instructions(code):
        name = str(one.argval)
        outer = one.opname == "STORE_DEREF" and name in code.co_freevars
        if outer or one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            found.append(Effect("state", f"{where} sets the variable {name!r}, which outlives the call"))
        stores_item = one.opname in ("STORE_SUBSCR", "DELETE_SUBSCR")
        mutates = one.opname in ("LOAD_METHOD", "LOAD_ATTR") and name in MUTATORS
        if stores_item or mutates or one.opname in ("STORE_ATTR", "DELETE_ATTR"):
            base = next(iter(before[-2:] if stores_item else before[-1:]), None)
            captured = base is not None and base.opname in _LOADS and str(base.argval) in known.keys() - _MAKES_FROZEN
            if captured and base is not None and not isinstance(known[str(base.argval)], types.ModuleType):
                found.append(Effect("state", f"{where} changes what is captured as {base.argval!r}"))
        if one.opname not in ("CACHE", "PRECALL", "RESUME", "NOP", "EXTENDED_ARG"):
            before.append(one)
    return found


def file_name(function: Any) -> str:
    """Name of the file that a function is written in, without its folders."""
    return os.path.basename(place(function.__code__)[0])
