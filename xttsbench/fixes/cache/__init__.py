"""Places in a pipeline where a cache could stand, the time that each would spare, and the room that it takes.

Pure. An op is a place where every pass yields the same up to it, an epoch has an end, and the epoch is read to that
end, since a cache that is not filled is thrown away. Shuffles and repeats before a map do not count: the fix lets them
come after the cache. Of a chain of places those are left that spare more than an earlier one, or hold less than a later
one; which of them is best depends on the rest of the pipeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from xttsbench.fixes.spec import Candidate, Setting, Spec, above, each, with_upstream
from xttsbench.records.fix import Fix
from xttsbench.records.pipeline import Pipeline, PipelineOp, every_op, size
from xttsbench.throughput.threads import chain_before, consumers, elements_per_batch, inputs_of

_SHARE: Final = 0.5  # share of the memory that a cache may take
_WORTH: Final = 0.02  # share of the pipeline's cost that a cache has to spare, also beside one that holds less
_SMALLER: Final = 0.95  # a place holds less than another where it holds this share of it at most
_MOST: Final = 4  # places that are looked at
BEHIND: Final = "put that behind the cache"
_NO_PLACE: Final = ("Prefetch", "Repeat", "ForeverRepeat", "Cache", "Options", "Model", "Shuffle", "CopyToDevice")
"""Ops after which a cache holds what one after their input would hold as well, or should not be."""
_REPEATS: Final = ("Repeat", "ForeverRepeat")
_IN_MEMORY: Final = ("Range", "Tensor")  # sources that are counted or lie in memory: a cache would hold them once more
TRAINING_EPOCHS: Final = 10
"""Epochs that a training is taken to have, of which the first one fills a cache: few speech models have fewer."""


@dataclass(frozen=True)
class CachePlace:
    """A place for a cache."""

    op: PipelineOp  # the one that it goes after
    spared_s: float  # cost of the ops before it, per batch of the pipeline, that no other cache spares already
    held_bytes: float | None  # what it would hold; `None` where that is not known
    fits: bool  # whether there is room for it in memory
    why_not: str | None  # why it has no room, or what would happen once only
    proof: str | None  # what must hold of the functions before it
    hazard: str | None  # what they draw at random, as their code says, and a cache would repeat
    above: frozenset[str]  # names of the ops before it, its own among them; without those that come after it

    @property
    def name(self) -> str:
        """Name of the fix, with the op."""
        return str(Fix("cache", "@", self.op.name))


def cache_places(pipeline: Pipeline, environment: Mapping[str, Any]) -> tuple[CachePlace, ...]:
    """All places that spare something, the last of the pipeline first."""
    same, by_name = _same_every_pass(pipeline), {op.name: op for op in pipeline.ops}
    costs_s = _left_to_spare_s(pipeline)
    found = []
    for op in reversed(pipeline.ops):
        if not same[op.name] or op.op.startswith(_NO_PLACE) or not is_read_to_its_end(op, pipeline):
            continue
        before = with_upstream(op, pipeline) - set(chain_before(op, pipeline).orderings)
        spared_s = sum(costs_s[name] for name in before)
        if all(by_name[name].op.startswith(_IN_MEMORY) for name in before) or _is_kept_later(op, pipeline):
            continue
        if spared_s <= 0 or spared_s < _WORTH * sum(costs_s.values()):
            continue
        elements = elements_in_a_pass(op, pipeline)
        held = elements * op.element_bytes if elements and op.element_bytes else None
        why_not = _no_room(held, environment)
        fits = why_not is None
        inside = list(every_op([one for one in pipeline.ops if one.name in before]))
        tokens = {token for own in inside for token in own.python_functions}
        proof = "it changes the data if a Python function before it does not always give the same" if tokens else None
        drawn = next((one.random for one in pipeline.python_functions if one.token in tokens and one.random), None)
        hazard = None if drawn is None else f"a cache would repeat the first pass: {drawn}; {BEHIND}"
        other = next((own for own in inside if own.side_effects and not own.python_functions), None)
        if other is not None and fits:
            why_not = f"what {other.name} does besides its result would happen once"
        found.append(CachePlace(op, spared_s, held, fits, why_not, proof, hazard, before))
    return tuple(found)


def candidates(setting: Setting) -> Iterator[Candidate]:
    """A candidate for each place that is worth comparing and has room, and for the last one with a hazard."""
    pipeline = setting.pipeline
    known = [place for place in cache_places(pipeline, setting.environment) if place.held_bytes is None or place.fits]
    if known and known[0].held_bytes is None and not any(place.fits for place in known):
        yield Candidate(known[0].name, None, known[0].why_not, ops=(known[0].op.name,))
        return
    little_s = _WORTH * sum(_left_to_spare_s(pipeline).values())
    left: list[CachePlace] = []
    drawn = [place for place in known if place.hazard is not None and place.held_bytes is not None]
    for place in known:  # from the last on, each spares at most what the one before it does
        if place.held_bytes is None or place.hazard is not None:
            continue
        later = left[-1] if left else None
        if later is not None and place.held_bytes > _SMALLER * (later.held_bytes or 0.0):
            continue
        if later is not None and later.spared_s - place.spared_s < little_s:
            left.pop()
        left.append(place)
    for place in (*drawn[:1], *left[:_MOST]):
        yield Candidate(
            place.name,
            partial(_free, names=place.above),
            place.why_not,
            place.proof,
            ops=(place.op.name,),
            held_bytes=place.held_bytes or 0.0,
            hazard=place.hazard,
        )


def is_read_to_its_end(op: PipelineOp, pipeline: Pipeline) -> bool:
    """Whether each epoch reads all elements of an op, as far as it is known."""
    return cut_by(op, pipeline) is None


def cut_by(op: PipelineOp, pipeline: Pipeline) -> PipelineOp | None:
    """The op that ends an epoch before all elements of another one were read; ``None`` where none is known to.

    A cache is complete once its last element was read (tried on TensorFlow 2.21): ``take`` of exactly as many is fine.
    """
    readers = consumers(pipeline)
    left = {op.name: elements_in_a_pass(op, pipeline) or 0.0}
    waiting = [op.name]
    while waiting:
        name = waiting.pop()
        for reader in readers.get(name, ()):
            whole = left[name]
            cuts = reader.op.startswith("TakeDataset") or (
                reader.op.startswith("ZipDataset") and len(inputs_of(reader, pipeline)) > 1
            )
            if cuts and reader.cardinality is not None and 0 <= reader.cardinality < whole:
                return reader
            if reader.op.startswith((*_REPEATS, "Skip", "Shard", "Concatenate")):
                continue  # it may well be read to its end once
            if reader.cardinality is None or reader.cardinality < -1:
                continue
            if reader.name not in left:
                endless = reader.cardinality == -1  # a pass of it is as many as the op's makes
                left[reader.name] = whole / (reader.batch_size or 1) if endless else float(reader.cardinality)
                waiting.append(reader.name)
    return None


def _same_every_pass(pipeline: Pipeline) -> dict[str, bool]:
    """Op -> whether each pass yields the same, known number of elements up to it, in the same order.

    For a map behind shuffles and repeats: whether it would, if they came after it.
    """
    same: dict[str, bool] = {}
    moved: dict[str, bool] = {}
    again: set[str] = set()  # repeats of what is always the same, such as windows over one tensor
    for op in pipeline.ops:
        names = inputs_of(op, pipeline)
        endless = op.op.startswith(_REPEATS) or op.cardinality == -1
        # What is zipped with something shorter ends with that.
        ends = endless or len(names) > 1
        always = not _is_random(op) and all(same.get(name, False) or (ends and name in again) for name in names)
        same[op.name] = always and not endless
        again |= {op.name} if always and endless else set()
        chain = chain_before(op, pipeline)
        if chain.orderings:
            between = [one for one in pipeline.ops if one.name in chain.between]
            moved[op.name] = same.get(chain.source, False) and not any(map(_is_random, between))
    return same | moved


def _is_random(op: PipelineOp) -> bool:
    return any(own.random for own in every_op((op,)))


def _left_to_spare_s(pipeline: Pipeline) -> dict[str, float]:
    """Cost of each op by its name; nothing where its elements come from a cache, now or once it was filled."""
    full = [op for op in pipeline.ops if op.op.startswith("Cache") and is_read_to_its_end(op, pipeline)]
    kept = above(full, pipeline)
    return {op.name: 0.0 if op.cached or op.name in kept else op.cost_s or 0.0 for op in pipeline.ops}


def _is_kept_later(op: PipelineOp, pipeline: Pipeline) -> bool:
    """Whether a cache after the op is filled already, or would be."""
    later = [one for one in pipeline.ops if one.op.startswith(("Cache", "Snapshot")) and one.name != op.name]
    return any(op.name in with_upstream(one, pipeline) and is_read_to_its_end(one, pipeline) for one in later)


def useless(
    op: str, types: Mapping[str, str], inputs: Mapping[str, Sequence[str]], in_memory: Collection[str]
) -> list[str]:
    """Names of caches in memory above an op that are redundant once a new cache after the op is full.

    Each of their elements passes the new cache once; before a repeat, a cache serves the passes after the first. Ops
    are given by name, with their types and what they read.
    """
    read = Counter(one for names in inputs.values() for one in names)
    found: list[str] = []
    while op in types and not types[op].startswith(_REPEATS) and len(inputs[op]) == 1 and read[inputs[op][0]] == 1:
        op = inputs[op][0]
        if op in in_memory:
            found.append(op)
    return found


def shuffled_bytes(op: PipelineOp, pipeline: Pipeline) -> float:
    """Bytes of a cache's elements that shuffles after the cache hold in memory."""
    elements, later = elements_in_a_pass(op, pipeline), chain_before(op, pipeline).orderings
    held = [one.buffer_size or 0 for one in pipeline.ops if one.name in later and "Shuffle" in one.op]
    most = [min(size, elements or size) if size > 0 else elements or 0.0 for size in held]
    return sum(most) * (op.element_bytes or 0)


def _no_room(held: float | None, environment: Mapping[str, Any]) -> str | None:
    """Why memory has no room for ``held`` bytes; ``None`` where it has."""
    if held is None:
        return "how large what it would hold is was not worked out"
    memory = _bytes_of(environment.get("memory"), "total_bytes", "limit_bytes")
    if memory is None:
        return "how large the memory is was not read"
    if held <= _SHARE * memory:
        return None
    return (
        f"it would hold {size(held)}, and the process may use {size(memory)} of memory, of which a cache may take half"
    )


def _bytes_of(part: Any, *names: str) -> float | None:
    known = [float(number) for name in names if isinstance(part, Mapping) and (number := part.get(name))]
    return min(known, default=None)


def _free(pipeline: Pipeline, names: frozenset[str]) -> Pipeline:
    """Pipeline with the named ops at no cost: elements come from memory, by reference and not copied."""
    tokens = {token for op in pipeline.ops if op.name in names for token in op.python_functions}
    functions = tuple(one for one in pipeline.python_functions if one.token not in tokens)
    nothing = {"cost_s": 0.0, "cpu_s": 0.0, "python_functions": (), "inner": ()}
    cached = each(pipeline, lambda op: nothing if op.name in names else {})
    return cached.model_copy(update={"python_functions": functions})


def elements_in_a_pass(op: PipelineOp, pipeline: Pipeline) -> float | None:
    """Elements that an op yields in an epoch; behind a filter what was counted is scaled to the whole of its input.

    Behind a repeat that may as well come later, a pass is one over what is repeated. ``None`` where the number is not
    known, as for a generator: what one of its few inputs yields was counted in part.
    """
    source = chain_before(op, pipeline).source
    op = next(one for one in pipeline.ops if one.name == source)
    if op.cardinality is not None and op.cardinality != -2:
        return float(op.cardinality) if op.cardinality > 0 else None
    above = with_upstream(op, pipeline)
    known = [
        one
        for one in pipeline.ops
        if one.name in above and one.cardinality not in (None, -2) and one.elements_per_batch
    ]
    if not known or not op.elements_per_batch or (known[-1].cardinality or 0) < 0:
        return None
    ratio = op.elements_per_batch / (known[-1].elements_per_batch or 1.0)
    return (known[-1].cardinality or 0) * ratio if ratio <= 1 else None


def over_a_training(first: float, after: float) -> float:
    """The speed-up of a training of :data:`TRAINING_EPOCHS` epochs, from those of its first and of its later epochs.

    Args:
        first: how many times as fast the epoch is in which a cache is filled.
        after: how many times as fast those are that read it.
    """
    return TRAINING_EPOCHS / (1 / first + (TRAINING_EPOCHS - 1) / after)


def first_pass_batches(op: PipelineOp, pipeline: Pipeline) -> float | None:
    """Batches of the pipeline until a cache after the op is full; ``None`` where that is not known."""
    taken, elements = elements_per_batch(pipeline).get(op.name), elements_in_a_pass(op, pipeline)
    return elements / taken if taken and elements else None


def behind_cache(pipeline: Pipeline) -> Pipeline:
    """The pipeline with every op marked whose elements came from a cache as the steps were measured; not the cache."""
    behind = above([op for op in pipeline.ops if op.op.startswith("CacheDataset")], pipeline)
    return each(pipeline, lambda op: {"cached": True} if op.name in behind else {})


CACHE: Final = Spec(
    name="cache",
    form="name@op",
    words="a cache in memory",
    does=(
        "a cache in memory after the op; a shuffle or `repeat()` before a map comes after its cache, so that each "
        "epoch still has an order of its own; caches that it makes useless are taken out"
    ),
    mends=("cacheable", "cache-misuse", "python-function"),
    candidates=candidates,
    rank=5,
    rewrite="xttsbench.fixes.cache.rewrite:cached",
    hazards="xttsbench.fixes.cache.rewrite:hazards",
    keeps_conditions=True,
    patch="xttsbench.fixes.cache.patch:cache",
)
