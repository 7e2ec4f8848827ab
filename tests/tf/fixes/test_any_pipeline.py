"""Whatever the pipeline and whichever fixes of those that keep the data: what is not refused yields the same."""

from __future__ import annotations

import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph import apply


def with_options(dataset):
    options = tf.data.Options()
    options.threading.private_threadpool_size = 3
    options.deterministic = False  # a sequential op keeps its order all the same
    return dataset.with_options(options)


def inner(x):
    return tf.data.Dataset.from_tensors(x).repeat(3).map(lambda y: y * 2)


OPS = {
    "map": lambda d: d.map(lambda x: x + 1),
    "python": lambda d: d.map(lambda x: tf.ensure_shape(tf.numpy_function(lambda y: y + 3, [x], tf.int64), x.shape)),
    "parallel map": lambda d: d.map(lambda x: x * 3, num_parallel_calls=2, deterministic=True),
    "filter": lambda d: d.filter(lambda x: tf.reduce_sum(x) % 5 != 0),
    "batch": lambda d: d.batch(2, drop_remainder=True),
    "padded": lambda d: d.padded_batch(2, drop_remainder=True),
    "prefetch": lambda d: d.prefetch(2),
    "flat_map": lambda d: d.flat_map(inner),
    "interleave": lambda d: d.interleave(inner, cycle_length=2, block_length=2),
    "parallel interleave": lambda d: d.interleave(inner, cycle_length=2, num_parallel_calls=1, deterministic=True),
    "take": lambda d: d.take(7),
    "shuffle": lambda d: d.shuffle(4, seed=1, reshuffle_each_iteration=False),
    "repeat": lambda d: d.repeat(2).take(40),
    "concatenate": lambda d: d.concatenate(d.map(lambda x: -x)),
    "options": with_options,
}
FIXES = (
    "parallel-map",
    "parallel-map:3",
    "parallel-interleave",
    "parallel-interleave:5",
    "prefetch",
    "prefetch:3",
    "buffer:1",
    "thread-pool:5",
)


def values(dataset):
    return [(x.shape, x.numpy().tolist()) for _ in range(2) for x in dataset]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(OPS)), min_size=1, max_size=6),
    st.lists(st.sampled_from(FIXES), min_size=1, max_size=4, unique=True),
)
def test_fixes_keep_every_element_and_its_place(ops, fixes):
    dataset = tf.data.Dataset.range(8)
    for op in ops:
        dataset = OPS[op](dataset)
    applied = []
    for fix in fixes:
        try:
            apply(dataset, " + ".join([*applied, fix]))
        except InvalidInputError as error:
            assert "does not apply" in str(error), error  # noqa: PT017 - any other refusal is a fault of the rewrite
        else:
            applied.append(fix)
    if applied:
        fixed = apply(dataset, " + ".join(applied))
        assert fixed.element_spec == dataset.element_spec
        assert values(fixed) == values(dataset)
