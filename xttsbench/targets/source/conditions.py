"""Conditions that keep an edit right when a setting is changed that the code was read with."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import libcst as cst
from libcst.metadata import ClassScope, GlobalScope

from xttsbench.records.pipeline import Setting
from xttsbench.targets.source.edits import NoEditError
from xttsbench.targets.source.module import Module


def condition(settings: Iterable[Setting], module: Module, node: cst.CSTNode) -> str:
    """Python for "all settings are as the code was read", as it is written at a node; empty without settings.

    Raises:
        NoEditError: a setting cannot be named there.
    """
    asked = dict.fromkeys(_asked(_named(one, module, node), one) for one in settings)
    return " and ".join(asked)


def _asked(name: str, setting: Setting) -> str:
    match setting.value:
        case "True":
            return name
        case "False":
            return f"not {name}"
        case "None":
            return f"{name} is None"
    try:
        ast.literal_eval(setting.value)
    except (SyntaxError, ValueError):
        raise _no_edit(setting) from None
    return f"{name} == {setting.value}"


def _named(setting: Setting, module: Module, node: cst.CSTNode) -> str:
    """The setting's name at a node: of the object of the method that it is in, or a global of the same file."""
    root, dot, rest = setting.name.partition(".")
    if setting.owners:
        for around in (one for one in module.ancestors(node) if isinstance(one, cst.FunctionDef)):
            scope = module.scope(around)
            if isinstance(scope, ClassScope) and scope.name in setting.owners and around.params.params:
                return f"{around.params.params[0].name.value}{dot}{rest}"
    elif setting.file == module.file:
        bound = [*module.scope(node)[root]]
        if bound and all(isinstance(one.scope, GlobalScope) for one in bound):
            return setting.name
    raise _no_edit(setting)


def _no_edit(setting: Setting) -> NoEditError:
    return NoEditError(
        f"the edit is right only while {setting.name} is {setting.value} ({setting.file}:{setting.line} asks for it), "
        "which cannot be written here: put the edit under that condition"
    )
