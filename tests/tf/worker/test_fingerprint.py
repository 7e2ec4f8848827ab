"""The kind of fingerprints on real pipelines: what two runs share, and what a run says about itself."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.fixes import graph as rewrite
from xttsbench.fixes.graph.hazards import not_there
from xttsbench.pipeline import places
from xttsbench.pipeline.read import read_graph
from xttsbench.records.trial import TrialSpec
from xttsbench.samedata.judge import judge
from xttsbench.targets.load import Loaded
from xttsbench.worker.failure import ExhaustedError
from xttsbench.worker.fingerprint import MOST_ROWS, read_elements
from xttsbench.worker.ladder import fixed

pytestmark = pytest.mark.tf


@pytest.fixture
def take(bench):
    """``take(make, fix=..., ...)``: the record of one run, under its own seed."""

    ends = []

    def run(make, *, fix=None, step=None, original=None, variables=(), **fields):
        fields = {"steps": 50, "epochs": 2, "window_s": 120.0} | fields
        spec = TrialSpec(trial_id="0", kind="elements", target="t:t", fix=fix, **fields)
        tf.keras.utils.set_random_seed(spec.seed)
        ends.append(places.install())
        dataset = make()
        fixed = dataset if fix is None else rewrite.apply(dataset, fix)
        loaded = Loaded("dataset" if step is None else "dataset+step", fixed, step)
        bench.channel.part(
            "elements", read_elements(spec, loaded, step, bench, dataset if original is None else original, variables)
        )
        return bench.channel.record().elements

    yield run
    for end in ends:
        end()


def rows_of(epoch):
    return [row for element in epoch.elements for row in element.rows]


def plain():
    def load(i):
        return np.full([3], float(i), np.float32)

    rows = tf.data.Dataset.range(10**6).map(
        lambda i: {"x": tf.ensure_shape(tf.numpy_function(load, [i], tf.float32), [3]), "id": i}
    )
    return rows.batch(4)


def shuffled():
    return tf.data.Dataset.range(10**6).shuffle(64).map(lambda i: tf.cast(i, tf.float32)).batch(4, drop_remainder=True)


def noisy(count=10**6):
    return tf.data.Dataset.range(count).map(lambda i: tf.random.normal([8]) + tf.cast(i, tf.float32)).batch(4)


def test_whole_epochs_of_a_shortened_pipeline_and_its_fixed_copy(take):
    ours = take(plain, source_limit=10)
    fixed = take(plain, fix="parallel-map", source_limit=10, jitter=True)
    assert [epoch.ended for epoch in ours.epochs] == [True, True]
    assert [len(element.rows) for element in ours.epochs[0].elements] == [4, 4, 2]
    assert ours.epochs == fixed.epochs
    assert ours.epochs[0] == ours.epochs[1]
    assert (ours.components, ours.epochs[0].elements[0].shapes) == (("id", "x"), ("int64[4]", "float32[4,3]"))
    assert ours.identity == fixed.identity  # of the original
    assert (ours.jittered, fixed.jittered) == (False, True)
    assert (fixed.fix, fixed.objections, fixed.ordered, fixed.random_ops) == ("parallel-map", (), True, ())


def test_sources_that_were_cut_too_short_are_cut_later(take):
    found = take(lambda: tf.data.Dataset.range(10**6).batch(32, drop_remainder=True), source_limit=5)
    assert (found.source_limit, [len(rows_of(epoch)) for epoch in found.epochs]) == (40, [32, 32])
    rare = take(lambda: tf.data.Dataset.range(42_000).filter(lambda i: i == 30_000), source_limit=5)
    assert (rare.source_limit, len(rare.epochs[0].elements)) == (None, 1)


def test_limits_cut_a_pass_off(take):
    found = take(plain, steps=3)
    assert [(len(epoch.elements), epoch.ended) for epoch in found.epochs] == [(3, False), (3, False)]
    assert [(len(e.elements), e.ended) for e in take(lambda: plain().take(3), steps=3).epochs] == [(3, True)] * 2
    wide = take(lambda: tf.data.Dataset.range(10**6).batch(500), steps=1000)
    assert sum(len(rows_of(epoch)) for epoch in wide.epochs) <= MOST_ROWS + 1000
    late = take(plain, window_s=1e-9)
    assert [len(epoch.elements) for epoch in late.epochs] == [1]


def test_where_time_is_short_the_first_epoch_is_read_to_its_end(take, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr("xttsbench.worker.fingerprint.time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    found = take(
        lambda: tf.data.Dataset.range(10), window_s=36
    )  # of which an element takes two, and half is not enough
    assert [epoch.ended for epoch in found.epochs] == [True, False]


def test_what_a_step_is_run_on_does_not_depend_on_how_much_is_read(take):
    def wide():
        return tf.data.Dataset.range(10**6).map(lambda i: {"id": i}).batch(1000)

    assert len(take(wide).epochs[0].elements) == MOST_ROWS / 2 / 1000
    trained = take(wide, step=lambda batch: tf.cast(tf.reduce_max(batch["id"]), tf.float32))
    assert trained.losses == (999.0, 1999.0, 2999.0)


def test_a_shuffled_pipeline_has_the_same_rows_in_another_order(take):
    first, again, other = (take(shuffled, source_limit=40, seed=seed) for seed in (1, 1, 2))
    assert first.epochs == again.epochs
    rows = [[row.hashes for row in rows_of(run.epochs[0])] for run in (first, other)]
    assert rows[0] != rows[1]
    assert sorted(rows[0]) == sorted(rows[1])
    assert first.epochs[0] != first.epochs[1]
    assert first.identity == other.identity
    (told,) = first.random_ops
    assert "shuffles" in told


def named(drop=True):
    """Names in random order with a random crop of each, and more of them than fill whole batches."""
    texts = tf.data.Dataset.range(43).map(lambda i: {"id": tf.strings.as_string(i), "x": tf.cast(i, tf.float32)})
    drawn = texts.shuffle(64).map(lambda one: one | {"crop": tf.random.normal([8]) + one["x"] * 0.01})
    return drawn.padded_batch(8, drop_remainder=drop).prefetch(1)


def test_what_is_dropped_behind_a_shuffle_is_seen_so_that_names_in_random_order_can_be_compared(take):
    originals = [take(named, source_limit=60, seed=seed) for seed in (1, 1, 2)]
    assert [len(rows_of(epoch)) for epoch in originals[0].epochs] == [43, 43, 43]
    assert originals[0].last_batch_kept
    cached = take(named, source_limit=60, seed=3, fix="cache@MapDataset/_4")  # another order than that of all originals
    assert judge(originals, cached).how == "distribution", judge(originals, cached)
    loses_one = take(named, source_limit=42, seed=1).model_copy(update={"source_limit": 60})
    assert "missing" in judge(originals, loses_one).sentence
    kept = take(lambda: named(drop=False), source_limit=60, seed=1)
    assert not kept.last_batch_kept
    assert judge(originals, kept).equivalent is not True


def test_random_values_have_sketches_of_the_same_kind(take):
    first, other = (take(lambda: noisy(8), source_limit=8, seed=seed) for seed in (1, 2))
    assert first.epochs != other.epochs
    means = [row.sketches[0][0] for row in rows_of(first.epochs[0])]
    assert np.abs(np.asarray(means) - np.arange(8)).max() < 3.0
    assert "draws random numbers" in first.random_ops[0]


def test_an_epoch_draws_anew_and_two_runs_draw_the_same(take):
    first, again = take(noisy, source_limit=8, seed=1), take(noisy, source_limit=8, seed=1)
    assert first.epochs == again.epochs
    ours = [[row.hashes for row in rows_of(epoch)] for epoch in first.epochs]
    assert len(ours[0]) == len(ours[1]) == 8
    assert not set(ours[0]) & set(ours[1])

    def kept():
        return tf.data.Dataset.range(8).map(lambda i: tf.random.normal([])).cache()

    frozen = take(kept)
    assert frozen.epochs[0] == frozen.epochs[1]  # the cache's own
    order = take(lambda: shuffled().map(lambda x: (x, tf.random.normal([4]))), source_limit=40)
    numbers = [[row.hashes[0] for row in rows_of(epoch)] for epoch in order.epochs]
    assert numbers[0] != numbers[1]
    assert sorted(numbers[0]) == sorted(numbers[1])


def test_state_shows_in_the_code_and_in_the_run(take):
    def counting():
        count = 0

        def number(i):
            nonlocal count
            count += 1
            return np.int64(count)

        options = tf.data.Options()
        options.threading.private_threadpool_size = 8
        rows = tf.data.Dataset.range(60).map(lambda i: (i, tf.numpy_function(number, [i], tf.int64)))
        return rows.with_options(options)

    ours, again = take(counting, epochs=1), take(counting, epochs=1)
    fixed = take(counting, fix="parallel-map", jitter=True, epochs=1)
    assert ours.epochs == again.epochs
    assert ours.epochs != fixed.epochs
    assert len(fixed.objections) == 1
    assert "sets the variable 'count'" in fixed.objections[0]


def test_order_that_is_given_up_is_told(take):
    options = tf.data.Options()
    options.deterministic = False
    assert take(plain).ordered
    assert not take(lambda: plain().with_options(options).map(lambda x: x, num_parallel_calls=2)).ordered
    parallel = tf.data.Dataset.range(9)
    assert not take(lambda: parallel.map(lambda x: x, num_parallel_calls=2, deterministic=False)).ordered
    assert take(lambda: parallel.map(lambda x: x, num_parallel_calls=2)).ordered


def test_losses_and_state_after_the_first_steps(take):
    weights = tf.Variable([1.0, 2.0])

    def step(batch):
        weights.assign_add([1.0, 0.0])
        return tf.reduce_sum(batch["x"]) * weights[1]

    found = take(plain, step=step, variables=[weights])
    assert found.losses == (36.0, 132.0, 228.0)
    assert found.state[0][:2] == (3.0, 1.0)
    silent = take(plain, step=lambda batch: None)
    assert (silent.losses, silent.unknown) == ((), {"losses": "the step returns no number that could be its loss"})
    broken = take(plain, step=lambda batch: 1 / 0)
    assert broken.unknown["losses"] == "the step raises ZeroDivisionError: division by zero"
    infinite = take(plain, step=lambda batch: tf.constant(np.inf))
    assert infinite.unknown["losses"] == "the loss of step 0 is inf"


def test_an_empty_dataset_has_no_fingerprint(take):
    with pytest.raises(ExhaustedError):
        take(lambda: plain().take(0))


def test_values_that_are_no_numbers_go_over_the_pipe(take):
    found = take(lambda: tf.data.Dataset.from_tensors(tf.constant([np.nan, np.inf, 1.0])))
    json.dumps(found.model_dump(mode="json"), allow_nan=False)
    assert take(lambda: tf.data.Dataset.range(8).window(2)).unknown == {
        "element": "a _VariantDataset has no bits to compare"
    }


def test_a_record_stays_below_a_megabyte(take):
    def wide():
        return tf.data.Dataset.range(10**6).map(lambda i: {str(k): tf.cast(i, tf.float32) for k in range(12)}).batch(32)

    assert len(take(wide, steps=10**4).model_dump_json()) < 1_200_000


def judged(take, make, faulty, **fields):
    """What the guard says of a faulty copy of a dataset, seen as a fix without a name is."""
    originals = [take(make, seed=seed, **fields) for seed in (1, 1, 2)]
    return judge(originals, take(faulty, original=make(), seed=1, **fields))


@pytest.mark.parametrize("last", [3_000, 5_995])
def test_another_value_far_from_the_beginning_is_seen(take, last):
    def make(wrong=0):
        return tf.data.Dataset.range(6_000).map(lambda i: i + wrong * tf.cast(i >= last, tf.int64)).batch(8)

    assert judged(take, make, make, source_limit=40).equivalent is True
    assert judged(take, make, lambda: make(wrong=1), source_limit=40).equivalent is False


def test_what_is_drawn_anew_for_two_epochs_and_repeated_then_is_seen(take):
    def make(epochs=10**6):
        drawn, calls = {}, {}

        def noise(i):
            number = calls[int(i)] = calls.get(int(i), -1) + 1
            key = (int(i), number % epochs)
            return drawn.setdefault(key, np.float32(i + np.random.rand()))

        return tf.data.Dataset.range(64).map(lambda i: (i, tf.numpy_function(noise, [i], tf.float32))).batch(8)

    found = judged(take, make, make)
    assert (found.equivalent, found.how, found.epochs) == (True, "identical", 3)
    for epochs in (1, 2):
        found = judged(take, make, lambda: make(epochs))  # noqa: B023 - called at once
        assert found.equivalent is False, found


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_a_wrong_value_of_a_long_half_precision_row_is_no_rounding(take, dtype):
    rows = np.random.default_rng(0).normal(size=(8, 160_000)).astype(np.float32)

    def make(values=rows):
        return tf.data.Dataset.from_tensor_slices(tf.cast(values, dtype)).batch(4)

    wrong = rows.copy()
    wrong[5, 77_777] += 1.5
    assert judged(take, make, lambda: make(wrong)).equivalent is False
    rounded = judged(take, make, lambda: make(rows * np.float32(1 + 1e-6)))
    assert (rounded.equivalent, rounded.how) == (True, "rounding")


@pytest.fixture
def take_with_step(bench):
    """``take_with_step(step, fix)``: the record of one run of a step with a fix."""

    def run(step, fix):
        dataset = tf.data.Dataset.range(64).map(lambda i: tf.cast(i, tf.float32)).batch(4)
        spec = TrialSpec(
            trial_id="0", kind="elements", target="t:t", fix=fix, steps=50, epochs=1, window_s=30.0, source_limit=40
        )
        loaded, changed = fixed(Loaded("dataset+step", dataset, step), step, spec)
        bench.channel.part("elements", read_elements(spec, loaded, changed, bench, dataset))
        return bench.channel.record().elements

    return run


def test_a_log_that_a_graph_would_lose_speaks_against_it_though_the_losses_are_the_same(take_with_step) -> None:
    log = []

    def step(batch):
        log.append(1)
        return tf.reduce_mean(batch)

    given = take_with_step(step, None)
    changed = take_with_step(step, "step:graph")
    assert given.losses == changed.losses
    assert given.objections == ()
    (why,) = changed.objections
    assert "once, while it is traced" in why
    assert "append() of the captured list 'log'" in why
    assert take_with_step(step, "prefetch").objections == ()
    assert take_with_step(step, "prefetch + step:xla").objections == (why,)


def test_a_graph_that_would_keep_the_first_learning_rate_trains_otherwise(take_with_step) -> None:
    def made():
        weight, rates = tf.Variable(1.0), iter(0.1 / number for number in itertools.count(1))

        def step(batch):
            weight.assign_sub(next(rates))
            return weight * tf.reduce_mean(batch)

        return step

    given, changed = take_with_step(made(), None), take_with_step(made(), "step:graph")
    assert given.losses == take_with_step(made(), None).losses
    assert changed.losses[0] == given.losses[0]
    found = judge([given, given, given], changed)
    assert found.equivalent is None, found


def test_variables_speak_against_nothing(take_with_step) -> None:
    weight = tf.Variable(1.0)

    def step(batch):
        weight.assign_sub(0.1)
        return weight * tf.reduce_mean(batch)

    assert take_with_step(step, "step:graph").objections == ()


def test_what_is_a_graph_already_has_lost_its_log_before_any_fix(take_with_step) -> None:
    log = []

    @tf.function
    def step(batch):
        log.append(1)
        return tf.reduce_mean(batch)

    assert take_with_step(step, "step:xla").objections == ()


class Switched:
    on = False

    def number(self, i):
        return i + np.random.default_rng().integers(9) if self.on else i

    def create(self):
        return tf.data.Dataset.range(8).map(lambda i: tf.numpy_function(self.number, [i], tf.int64))


@pytest.mark.parametrize("turned", [False, True])
def test_a_switch_that_is_turned_unseen_is_noticed_where_the_code_is_read_again(take, turned):
    loader = Switched()

    def step(batch):
        if turned:
            setattr(loader, "".join(["o", "n"]), True)  # no text says which attribute it is
        return tf.constant(1.0)

    cached = "cache@" + next(node.name for node in read_graph(loader.create()).node if node.op == "MapDataset")
    objections = take(loader.create, fix=cached, step=step).objections
    assert any("draws random numbers" in one for one in objections) is turned


@pytest.mark.parametrize(
    ("make", "samples"),
    [
        (lambda: tf.data.Dataset.range(10).batch(4), 10),
        (lambda: tf.data.Dataset.range(10).batch(4, drop_remainder=True), 8),
        (lambda: tf.data.Dataset.range(10).batch(4).repeat(3).prefetch(1), 30),
        (lambda: tf.data.Dataset.range(10).repeat(3).batch(4), 30),
        (lambda: tf.data.Dataset.range(10), 10),
    ],
)
def test_the_samples_of_an_epoch_are_counted_with_a_last_batch_as_it_is(take, make, samples):
    assert take(make).rows_of == samples


def test_a_name_that_is_assumed_to_be_pure_and_is_not_there_is_told():
    def halved(i):
        return i / 2

    dataset = tf.data.Dataset.range(9).map(lambda i: tf.numpy_function(halved, [i], tf.float64))
    graph, stem = read_graph(dataset), Path(__file__).stem
    assert not_there(dataset, graph, (f"{stem}.halved",)) == ()
    (told,) = not_there(dataset, graph, ("data.load",))
    assert told.startswith("--assume-pure data.load: nothing of that name is called in the pipeline, which has ")
    assert f"{stem}.halved" in told
