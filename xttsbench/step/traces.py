"""Why a tf.function was traced again, told from the signatures of the traces before it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

Reason = Literal["first", "new function object", "shape", "python value", "other"]

_SHAPE = re.compile(r"shape=(\([^)]*\)|<unknown>|None)")
_LITERAL = re.compile(r"Literal\[[^\]]*\]")


def trace_reason(before: Sequence[tuple[int, str]], function_id: int, signature: str) -> Reason:
    """The reason of a trace, given the ``(id of the Python function, signature)`` of earlier ones of the same name.

    ``shape``: an earlier trace of the same function differs in tensor shapes only; ``python value``: in a Python
    argument only; ``new function object``: the signature was traced before, for another function object, which is
    what a tf.function made inside the loop does.
    """
    if not before:
        return "first"
    own = [earlier for earlier_id, earlier in before if earlier_id == function_id]
    if not own:
        return "new function object"
    if any(_SHAPE.sub("", earlier) == _SHAPE.sub("", signature) and earlier != signature for earlier in own):
        return "shape"
    if any(_LITERAL.sub("", earlier) == _LITERAL.sub("", signature) and earlier != signature for earlier in own):
        return "python value"
    # The same signature again: a function traces twice on its first call where it creates variables.
    return "first" if len(own) == 1 and own[0] == signature else "other"
