"""``buckets``: elements of similar length share a batch, where the user says that other batches are welcome."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.fixes.spec import Candidate, Setting, Spec

_WASTE: Final = 0.2  # share of padding in the batches from which other batches are worth offering


def candidates(setting: Setting) -> Iterator[Candidate]:
    """The last op that pads, where what it pads was measured to be much."""
    padding = [op for op in setting.pipeline.ops if op.op.startswith("PaddedBatch")]
    grouped = any(op.op.startswith("GroupByWindow") for op in setting.pipeline.ops)
    if padding and not grouped and setting.padding_share is not None and setting.padding_share >= _WASTE:
        why = "what less padding gives the step was not measured"
        yield Candidate("buckets", None, why, ops=(padding[-1].name,))


BUCKETS: Final = Spec(
    name="buckets",
    words="batches of elements of similar length",
    does=(
        "`padded_batch(n)` becomes buckets by length, which end at the powers of the square root of two: the same "
        "samples in other batches, with less padding; only with `--allow batches`"
    ),
    mends=("padding-waste",),
    candidates=candidates,
    rank=11,
    tried_unpriced=True,
    helps_step=True,
    rewrite="xttsbench.fixes.buckets.rewrite:buckets",
    asked_for="other batches have to be asked for (--allow batches)",
    by_hand=(
        "write .bucket_by_sequence_length(length, bucket_boundaries=[...], bucket_batch_sizes=[n, ...]) in place of "
        ".padded_batch(n)"
    ),
)
