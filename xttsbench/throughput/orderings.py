"""Shuffles and repeats: they say when elements come and not what they are, so that maps behind them may run before.

Pure; the same for a graph's nodes and for a pipeline's record. A ``shuffle`` draws its numbers without looking at the
elements: with the same seed and buffer, mapped elements leave it in the order in which the others would have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.threads import inputs_of

_ORDERING: Final = re.compile(r"(Shuffle|Repeat|ForeverRepeat|ShuffleAndRepeat)Dataset(V\d+)?")
_MAP: Final = re.compile(r"(Parallel)?MapDataset(V\d+)?")
_ONE_BY_ONE: Final = re.compile(rf"{_MAP.pattern}|PrefetchDataset|OptionsDataset")
"""Ops that yield one element for each that they read, in the same order."""


@dataclass(frozen=True)
class Chain:
    """An op with the shuffles and repeats before it that may as well come after it, where it is a map.

    Attributes:
        orderings: their names, sources first; empty where there are none.
        between: names of the ops that stand behind one of them, the map included, sources first.
        source: name of the op that the first of them reads; of the op itself where there are none.
    """

    orderings: tuple[str, ...]
    between: tuple[str, ...]
    source: str


def chain_before(op: PipelineOp, pipeline: Pipeline) -> Chain:
    """The chain that ends in an op of a pipeline's record, as :func:`chain_of` has it."""
    inputs = {one.name: inputs_of(one, pipeline) for one in pipeline.ops}
    return chain_of(op.name, {one.name: one.op for one in pipeline.ops}, inputs)


def chain_of(name: str, types: Mapping[str, str], inputs: Mapping[str, Sequence[str]]) -> Chain:
    """The chain that ends in the named op.

    Args:
        name: of an op.
        types: type of each op, by its name.
        inputs: names of the ops that each of them reads.
    """
    read = Counter(one for names in inputs.values() for one in names)
    passed, found = [name], Chain((), (), name)
    while _MAP.fullmatch(types.get(name, "")) and len(inputs[passed[-1]]) == 1:
        (above,) = inputs[passed[-1]]
        is_ordering = _ORDERING.fullmatch(types.get(above, "")) is not None
        # What others read as well is theirs too; and an op is named once, so that there is no circle.
        if read[above] != 1 or not (is_ordering or _ONE_BY_ONE.fullmatch(types.get(above, ""))):
            break
        passed.append(above)
        if is_ordering and len(inputs[above]) == 1 and inputs[above][0] in types:
            orderings = [one for one in passed if _ORDERING.fullmatch(types[one])]
            between = [one for one in passed if one not in orderings]
            found = Chain(tuple(reversed(orderings)), tuple(reversed(between)), inputs[above][0])
    return found
