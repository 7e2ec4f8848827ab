"""A dataset written around the batches of a script's own loop, which go on in the types that they had.

``for x, y in loader`` goes over a dataset of that loader, made once before the outermost loop. What a loop over numbers
computes, or asks an iterator for, is computed by a generator over the same numbers; the iterator that a ``while`` loop
asks goes into the dataset itself. What is made ahead must not be lost to anybody, so there is no edit where the loop
may be left before its batches end, or where anybody else has that iterator.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Final

import libcst as cst

from xttsbench.fixes.dataset import AHEAD
from xttsbench.fixes.step.written_out import above, loop_of, outermost
from xttsbench.pipeline.python.mutators import MUTATORS
from xttsbench.records.code import OwnBatches
from xttsbench.targets.source.calls import Calls, attempt
from xttsbench.targets.source.edits import Change, Found, NoEditError, NothingToDoError, Replacement
from xttsbench.targets.source.link_edits import spelled
from xttsbench.targets.source.module import Module

_NAMES: Final = ("batches", "batches_ahead", "made_ahead")
_OF_TENSORFLOW: Final = re.compile(r"\btf\.(\w+)")
_LEAVING: Final = (cst.Break, cst.Return)


def around_loop(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """The batches of the training loop from a dataset around what makes them."""
    own = calls.own_batches
    if own is None:
        return [Found(why_not="the training loop takes its batches from a dataset already")]
    file, line = own.place.file, own.place.line
    by_hand = f"write the dataset around what makes the batches at {file}:{line} by hand"
    return [attempt(lambda: [_around(calls.module(file), own)], by_hand)]


def _around(module: Module, own: OwnBatches) -> Change:
    line, lists = own.place.line, (own.kind or "").startswith("lists")
    if own.signature is None or own.kind is None:
        raise NoEditError("the parts of a batch are not all arrays, or not all tensors")
    over, node = own.text.startswith("for "), None
    loop: cst.For | cst.While | None = None
    if over:
        loop = next((one for one in module.of(cst.For) if module.line(one) == line), None)
        node = loop.iter if loop is not None else None
        if isinstance(node, cst.Call) and module.is_builtin(node.func, "enumerate"):
            node = node.args[0].value
    else:
        node = _asking(module, own)
        loop = loop_of(module, node)
    alone = None if over or loop is None else _alone(module, node, loop)
    if node is None or loop is None or not (alone or isinstance(loop, cst.For)):
        raise NoEditError(f"what makes a batch at {module.file}:{line} is in no loop over numbers or batches")
    _refuse_leaving(module, loop, () if alone else _LEAVING)
    _refuse_changes(module, own, loop, [node, loop.iter] if isinstance(loop, cst.For) else [node])
    signature, made = own.signature if over else _in_order(module, own, node), module.code(node)
    if alone:
        made = f"map(tuple, {alone})" if lists else alone
    elif over:
        made = f"({made})" if isinstance(node, cst.Tuple) and not node.lpar else made
        made = f"map(tuple, {made})" if lists else made
    elif isinstance(loop, cst.For):
        made = f"tuple({made})" if lists else made
        made = f"({made} for {module.code(loop.target)} in {module.code(loop.iter)})"
    # Where Keras alone is imported, as late as can be: a script may set what TensorFlow reads at its import.
    bare = module.spelled(loop, "data.Dataset") is None and not re.search(r"\b(tf|tensorflow)\b", module.text)
    specs = signature if bare else _OF_TENSORFLOW.sub(lambda found: spelled(module, loop, found[1]), signature)
    dataset, name = "tf.data.Dataset" if bare else spelled(module, loop, "data.Dataset"), _free(module)
    dataset = f"{dataset}.from_generator(lambda: {made}, output_signature={specs}).prefetch({AHEAD})"
    new = [(outermost(module, loop), line) for line in (*["import tensorflow as tf"] * bare, f"{name} = {dataset}")]
    used = f"{name}.as_numpy_iterator()" if own.kind.endswith("arrays") else name
    if not over:
        begun = used if own.kind.endswith("arrays") else f"iter({name})"
        new.append((outermost(module, loop) if alone else loop, f"{name}_now = {begun}"))
        used = f"next({name}_now)"
    steps, span = [], module.span(node)
    for before, text in new:
        at = above(module, before)
        steps.append(Replacement(at, at, f"{module.indent(module.start(before))}{text}{module.line_end}"))
    return Change(module, line, span, (*steps, Replacement(*span, used)))


def _asking(module: Module, own: OwnBatches) -> cst.BaseExpression:
    """The expression that gives a batch: the value of a statement, or an argument."""
    given: dict[cst.CSTNode, cst.BaseExpression] = {one: one.value for one in module.of(cst.Assign)}
    given |= {one: one for one in (*module.of(cst.Call), *module.of(cst.Subscript))}
    for one, node in given.items():
        if module.line(one) == own.place.line and ast.unparse(ast.parse(module.code(one))) == own.text:
            return node
    raise NoEditError(f"what makes a batch at {module.file}:{own.place.line} is more than one expression")


def _in_order(module: Module, own: OwnBatches, node: cst.BaseExpression) -> str:
    """The signature of what an expression gives: that of the batch is of its names, sorted."""
    names, signature, statement = own.names.split(", "), own.signature or "", module.statement(node)
    target = statement.targets[0].target if isinstance(statement, cst.Assign) and own.names != "batch" else None
    if target is None or (isinstance(target, cst.Name) and names == [target.value]):
        return signature
    order = module.shown(target).strip("()[]").split(", ")
    if sorted(order) != names or len(names) < 2:
        raise NoEditError(f"not all that is set at {_at(module, node)}, or more, is the batch")
    parts = ast.parse(signature, mode="eval").body
    known = dict(zip(names, map(ast.unparse, parts.elts if isinstance(parts, ast.Tuple) else ()), strict=True))
    return f"({', '.join(known[name] for name in order)})"


def _alone(module: Module, node: cst.BaseExpression | None, loop: cst.For | cst.While) -> str | None:
    """The name of the iterator that a ``while`` loop asks by ``next(it)``, where nothing else ever does."""
    call = node if isinstance(loop, cst.While) and isinstance(node, cst.Call) and len(node.args) == 1 else None
    given = call.args[0].value if call is not None and module.is_builtin(call.func, "next") else None
    if not isinstance(given, cst.Name):
        return None
    others = [one for one in module.of(cst.Name) if one.value == given.value and one is not given]
    known = [module.is_set(one) and module.scope(one) is module.scope(given) for one in others]
    before = others and module.start(others[0]) < module.start(outermost(module, loop))
    return given.value if known == [True] and before else None


def _refuse_leaving(module: Module, loop: cst.For | cst.While, leaving: Iterable[type[cst.CSTNode]]) -> None:
    """Refuse a loop that may be left early by such a statement, or whose errors are handled."""
    for node in (one for kind in leaving for one in module.inside(loop.body, kind)):
        if isinstance(node, cst.Return) or loop_of(module, node) is loop:
            raise NothingToDoError(
                f"the loop may be left at {_at(module, node)} before its batches end: those that were made ahead "
                "would be lost"
            )
    for one in module.ancestors(loop):
        for handler in one.handlers if isinstance(one, cst.Try) else ():
            if handler.type is None or module.code(handler.type) != "KeyboardInterrupt":
                raise NothingToDoError(
                    f"what the loader raises is handled at {_at(module, handler)}: it would be another"
                )


def _refuse_changes(module: Module, own: OwnBatches, loop: cst.For | cst.While, given: Iterable[cst.CSTNode]) -> None:
    """Refuse what makes the batches where the loop sets or changes what it reads, as far as the names tell."""
    read = {name.value for node in given for name in module.inside(node, cst.Name)}
    for maker in module.of(cst.FunctionDef):
        if own.maker is not None and (module.file, module.line(maker)) == (own.maker.file, own.maker.line):
            names = module.inside(maker.body, cst.Name)
            read |= {one.value for one in names} - {one.value for one in names if module.is_set(one)}
    for name in module.inside(loop.body, cst.Name):
        around = module.parent(name)
        changed = isinstance(around, cst.Attribute) and (module.is_set(around) or around.attr.value in MUTATORS)
        changed |= isinstance(around, cst.Subscript) and around.value is name and module.is_set(around)
        if name.value in read and (changed or module.is_set(name)):
            raise NothingToDoError(
                f"the name {name.value}, which makes the batches, is changed in the loop at {_at(module, name)}"
            )


def _free(module: Module) -> str:
    name = next((one for one in _NAMES if not re.search(rf"\b{one}\b", module.text)), None)
    if name is None:
        raise NoEditError(f"the names {', '.join(_NAMES)} are all in use in {module.file}")
    return name


def _at(module: Module, node: cst.CSTNode) -> str:
    return f"{module.file}:{module.line(node)}"
