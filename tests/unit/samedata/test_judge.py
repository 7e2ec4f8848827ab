"""The judgement of a fix by fingerprints, the specs of elements among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.samedata.elements import Run, batched, changed, cut, fingerprints, noised, plain, samples, shuffled
from xttsbench.records.pipeline import Elements
from xttsbench.samedata.judge import judge, spec_difference

ROWS = samples(64)


def three(run: Run, other: Run | None = None, **fields: Any) -> list[Elements]:
    """Two runs with one seed, one with another."""
    return [
        fingerprints(run, seed=1, **fields),
        fingerprints(run, seed=1, **fields),
        fingerprints(other or run, seed=2, **fields),
    ]


def shuffling(**fields: Any) -> list[Elements]:
    return three(shuffled(ROWS, seed=1), shuffled(ROWS, seed=2), random_ops=("ShuffleDatasetV3",), **fields)


def augmenting() -> list[Elements]:
    """In order, with noise; the two runs with one seed differ too, as those of parallel draws do."""
    return [fingerprints(noised(plain(ROWS), seed=seed), random_ops=("StatelessRandomNormal",)) for seed in (1, 2, 3)]


class TestDeterministic:
    def test_the_same_bits_are_identical(self) -> None:
        found = judge(three(plain(ROWS)), fingerprints(plain(ROWS)))
        assert (found.equivalent, found.how, found.elements, found.epochs) == (True, "identical", 48, 3)
        assert found.sentence == "48 elements of 3 epochs are the same, bit for bit."

    def test_other_data_are_those_that_were_seen_with_the_first_row_and_the_reason(self) -> None:
        other = [(ROWS[0][0] + 1, *ROWS[0][1:]), *ROWS[1:]]
        found = judge(three(plain(ROWS)), fingerprints(plain(other), objections=("read() counts (data.py:3)",)))
        assert (found.equivalent, found.how) == (False, "different")
        assert found.sentence.startswith(
            "Read() counts (data.py:3). Seen: The data differ: first at epoch 1, element 1"
        )

    def test_an_objection_leaves_unproved_what_looked_the_same(self) -> None:
        found = judge(
            three(plain(ROWS)), fingerprints(plain(ROWS), objections=("read() appends to `seen` (data.py:3)",))
        )
        assert (found.equivalent, found.how) == (None, "unknown")
        assert found.sentence == "Read() appends to `seen` (data.py:3)."

    def test_another_order_is_named_as_one(self) -> None:
        rows = [*ROWS[:5], ROWS[6], ROWS[5], *ROWS[7:]]
        found = judge(three(plain(ROWS)), fingerprints(plain(rows)))
        assert (found.equivalent, found.how) == (False, "different")
        assert "same samples" in found.sentence
        assert "another order, which this pipeline promises" in found.sentence
        assert "epoch 1, element 2, sample 2, [0]" in found.sentence

    def test_another_value_is_placed(self) -> None:
        rows = [*ROWS[:9], (ROWS[9][0], np.int64(5), ROWS[9][2]), *ROWS[10:]]
        found = judge(three(plain(ROWS)), fingerprints([*plain(ROWS, epochs=1), *plain(rows, epochs=2)]))
        assert found.equivalent is False
        assert "epoch 2, element 3, sample 2, [1]" in found.sentence
        assert "had 64 samples and has 64; 1 missing, 1 new" in found.sentence

    def test_a_missing_sample_is_counted(self) -> None:
        found = judge(three(plain(ROWS)), fingerprints(plain(ROWS[:-1])))
        assert found.equivalent is False
        assert "had 64 samples and has 63; 1 missing" in found.sentence

    def test_batches_cut_otherwise_are_another_thing(self) -> None:
        found = judge(three(plain(ROWS)), fingerprints(plain(ROWS, batch=8)))
        assert found.equivalent is False
        assert "cut into other batches" in found.sentence

    def test_an_epoch_more_or_less_is_seen(self) -> None:
        shorter, longer = plain(ROWS[:60]), plain(ROWS)
        for original, fix, word in ((longer, shorter, "ends before"), (shorter, longer, "goes on")):
            found = judge(three(original), fingerprints(fix))
            assert found.equivalent is False
            assert word in found.sentence

    def test_state_that_counts_calls_gives_itself_away(self) -> None:
        counted = [(np.int64(number), *row) for number, row in enumerate(ROWS)]
        late = [(np.int64(number ^ 1), *row) for number, row in enumerate(ROWS)]
        assert judge(three(plain(counted)), fingerprints(plain(late))).equivalent is False

    def test_one_run_of_the_original_is_enough_for_equal_bits_and_for_nothing_else(self) -> None:
        (first, *_) = three(plain(ROWS))
        assert judge([first], fingerprints(plain(ROWS))).equivalent is True
        rows = [(ROWS[0][0] + 1, *ROWS[0][1:]), *ROWS[1:]]
        assert judge([first], fingerprints(plain(rows))).equivalent is None
        assert judge([first], fingerprints(plain(ROWS[:-4]))).equivalent is False

    def test_no_original_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="got none"):
            judge([], fingerprints(plain(ROWS)))


class TestCutOff:
    def test_runs_are_compared_as_far_as_both_were_seen(self) -> None:
        found = judge(three(plain(ROWS)), fingerprints(cut(plain(ROWS), 5), ended=False))
        assert (found.equivalent, found.elements, found.epochs) == (True, 5, 1)

    def test_nothing_seen_is_nothing_known(self) -> None:
        assert judge(three(plain(ROWS)), fingerprints([[]], ended=False)).equivalent is None
        originals = three([[]], ended=False)
        assert judge(originals, fingerprints(plain(ROWS))).equivalent is None

    def test_a_pipeline_that_ends_at_once_lost_its_data(self) -> None:
        assert judge(three(plain(ROWS)), fingerprints([[]])).equivalent is False
        assert judge(three([[], []]), fingerprints(plain(ROWS))).equivalent is False
        assert judge(three([[], []]), fingerprints([[], []])).how == "identical"

    def test_sources_cut_to_other_lengths_are_not_compared(self) -> None:
        assert judge(three(plain(ROWS)), fingerprints(plain(ROWS), source_limit=64)).equivalent is None

    def test_another_value_before_the_cut_is_seen(self) -> None:
        rows = [(ROWS[0][0] + 1, *ROWS[0][1:]), *ROWS[1:]]
        assert judge(three(plain(ROWS)), fingerprints(cut(plain(rows), 5), ended=False)).equivalent is False


class TestRounding:
    @pytest.mark.parametrize(("dtype", "noise"), [(np.float32, 1e-7), (np.float64, 1e-13), (np.float16, 2e-4)])
    def test_noise_of_the_arithmetic_is_rounding(self, dtype: Any, noise: float) -> None:
        rows = [(row[0].astype(dtype), *row[1:]) for row in ROWS]
        rng = np.random.default_rng(3)

        def near(row: Any) -> Any:
            return ((row[0].astype(np.float64) * (1 + noise * rng.standard_normal(8))).astype(dtype), *row[1:])

        found = judge(three(plain(rows)), fingerprints(changed(plain(rows), near)))
        assert (found.equivalent, found.how) == (True, "rounding")

    def test_one_value_of_one_row_is_not(self) -> None:
        value = ROWS[17][0].copy()
        value[3] += 0.01
        rows = [*ROWS[:17], (value, *ROWS[17][1:]), *ROWS[18:]]
        assert judge(three(plain(ROWS)), fingerprints(plain(rows))).equivalent is False

    def test_floats_that_are_close_and_swapped_have_moved(self) -> None:
        rows = [(np.float32(1_000_000 + number), *row[1:2]) for number, row in enumerate(ROWS)]
        rows = [(value, np.int64(0)) for value, _ in rows]
        swapped = [rows[1], rows[0], *rows[2:]]
        found = judge(three(plain(rows)), fingerprints(plain(swapped)))
        assert found.equivalent is False
        assert "another order" in found.sentence

    def test_labels_are_never_rounded(self) -> None:
        rows = [
            (row[0] * np.float32(1 + 1e-7), row[1] + (1 if number == 3 else 0), row[2])
            for number, row in enumerate(ROWS)
        ]
        assert judge(three(plain(ROWS)), fingerprints(plain(rows))).equivalent is False

    def test_rounding_is_taken_out_of_shuffled_samples_too(self) -> None:
        near = changed(shuffled(ROWS, seed=5), lambda row: (row[0] * np.float32(1 + 3e-7), *row[1:]))
        found = judge(shuffling(), fingerprints(near))
        assert (found.equivalent, found.how) == (True, "other order")
        assert "rounding" in found.sentence


class TestShuffled:
    def test_the_same_seed_gives_the_same_bits(self) -> None:
        assert judge(shuffling(), fingerprints(shuffled(ROWS, seed=1))).how == "identical"

    def test_another_shuffle_of_the_same_samples_is_as_good(self) -> None:
        found = judge(shuffling(), fingerprints(shuffled(ROWS, seed=7)))
        assert (found.equivalent, found.how) == (True, "other order")
        assert "64" not in found.sentence.split("samples")[1]
        assert "192 samples over 3 epochs" in found.sentence

    def test_a_frozen_order_is_found(self) -> None:
        for seed in (1, 7):
            found = judge(shuffling(), fingerprints(shuffled(ROWS, seed=seed, anew=False), fix="cache@Batch"))
            assert found.equivalent is False
            assert "frozen" in found.sentence

    def test_one_epoch_does_not_show_whether_a_cache_froze_it(self) -> None:
        found = judge(shuffling(), fingerprints(shuffled(ROWS, seed=1)[:1], fix="cache@Batch"))
        assert found.equivalent is None
        assert judge(shuffling(), fingerprints(shuffled(ROWS, seed=1)[:1], fix="prefetch")).equivalent is True

    def test_batches_that_stay_together_are_found(self) -> None:
        rng = np.random.default_rng(4)
        batches = batched(ROWS, 4)
        together = [[batches[number] for number in rng.permutation(len(batches))] for _ in range(3)]
        found = judge(shuffling(), fingerprints(together))
        assert found.equivalent is False
        assert "batches" in found.sentence

    def test_lost_and_doubled_samples_are_found(self) -> None:
        for rows in (ROWS[:-4], [*ROWS[:-4], *ROWS[:4]], [*ROWS, *ROWS[:4]]):
            assert judge(shuffling(), fingerprints(shuffled(rows, seed=7))).equivalent is False

    def test_few_orders_may_be_the_same_by_chance(self) -> None:
        """As those of two files that are shuffled: two of three epochs alike are no proof of a frozen order."""
        halves = (ROWS[:32], ROWS[32:])
        runs = [
            [batched([*halves[first], *halves[1 - first]], 4) for first in order]
            for order in ((0, 1, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0))
        ]
        *before, after = [fingerprints(run, random_ops=("ShuffleDatasetV3",)) for run in runs]
        assert judge(before, after).equivalent is True
        frozen = fingerprints([runs[2][0]] * 3, random_ops=("ShuffleDatasetV3",))
        assert judge(before, frozen).equivalent is False

    def test_an_order_that_was_kept_must_be_kept(self) -> None:
        originals = three(shuffled(ROWS, seed=1, anew=False), shuffled(ROWS, seed=2, anew=False))
        assert judge(originals, fingerprints(shuffled(ROWS, seed=7, anew=False))).equivalent is True
        assert judge(originals, fingerprints(shuffled(ROWS, seed=7))).equivalent is False

    def test_other_batch_sizes_are_found(self) -> None:
        assert judge(shuffling(), fingerprints(shuffled(ROWS, seed=7, batch=8))).equivalent is False

    def test_labels_of_others_are_found(self) -> None:
        wrong = [(row[0], other[1], row[2]) for row, other in zip(ROWS, [*ROWS[1:], ROWS[0]], strict=True)]
        assert judge(shuffling(), fingerprints(shuffled(wrong, seed=7))).equivalent is False


class TestEndless:
    """``shuffle().repeat()``: one epoch that does not end, in which the samples come round."""

    @staticmethod
    def endless(seed: int, rows: list[Any] = ROWS, **how: Any) -> Run:
        rounds = shuffled(rows, seed=seed, epochs=6, batch=1, **how)
        return [batched([row for epoch in rounds for batch in epoch for row in batch], 4)]

    def originals(self) -> list[Elements]:
        return three(self.endless(1), self.endless(2), ended=False, random_ops=("ShuffleDatasetV3",))

    def test_another_shuffle_is_as_good(self) -> None:
        found = judge(self.originals(), fingerprints(self.endless(7), ended=False))
        assert (found.equivalent, found.how) == (True, "other order")

    def test_a_frozen_order_is_found(self) -> None:
        for seed in (1, 7):
            found = judge(self.originals(), fingerprints(self.endless(seed, anew=False), ended=False))
            assert found.equivalent is False

    def test_lost_and_doubled_samples_are_found(self) -> None:
        for rows in (ROWS[:-4], [*ROWS[:-4], *ROWS[:4]], [*ROWS, *ROWS[:4]]):
            assert judge(self.originals(), fingerprints(self.endless(7, rows), ended=False)).equivalent is False


class TestUnordered:
    def test_an_order_that_nobody_promised_may_change(self) -> None:
        originals = three(plain(ROWS), ordered=False)
        found = judge(originals, fingerprints(shuffled(ROWS, seed=3, anew=False), ordered=False))
        assert (found.equivalent, found.how) == (True, "other order")
        assert "nobody was promised" in found.sentence
        assert judge(originals, fingerprints(plain(ROWS[:-1]), ordered=False)).equivalent is False

    def test_an_order_that_was_promised_may_not(self) -> None:
        originals, fix = three(plain(ROWS)), fingerprints(shuffled(ROWS, seed=3), ordered=False)
        found = judge(originals, fix)
        assert found.equivalent is False
        assert "gives up the order" in found.sentence
        found = judge(originals, fix, allow_other_order=True)
        assert (found.equivalent, found.how) == (True, "other order")
        assert "given up as asked for" in found.sentence

    def test_giving_it_up_is_no_excuse_for_other_data(self) -> None:
        fix = fingerprints(shuffled(ROWS[1:], seed=3), ordered=False)
        assert judge(three(plain(ROWS)), fix, allow_other_order=True).equivalent is False

    def test_runs_that_were_cut_off_need_only_agree_before_the_cut(self) -> None:
        def late(seed: int, rows: list[Any] = ROWS) -> Run:
            key = np.arange(len(rows)) + np.random.default_rng(seed).uniform(0, 6, len(rows))
            return [batched([rows[number] for number in np.argsort(key)][:48], 4)]

        originals = three(late(1), late(2), ordered=False, ended=False)
        assert judge(originals, fingerprints(late(3), ordered=False, ended=False)).equivalent is True
        lost = fingerprints(late(3, [*ROWS[:7], *ROWS[8:]]), ordered=False, ended=False)
        assert judge(originals, lost).equivalent is not True
        other = fingerprints(late(3, samples(64, seed=9)), ordered=False, ended=False)
        assert judge(originals, other).equivalent is False


class TestDrawn:
    def test_draws_from_the_same_distribution_pass_as_such(self) -> None:
        found = judge(augmenting(), fingerprints(noised(plain(ROWS), seed=9)))
        assert (found.equivalent, found.how) == (True, "distribution")
        assert "[0]" in found.sentence
        assert "all else is the same" in found.sentence

    def test_shuffled_and_drawn(self) -> None:
        originals = [fingerprints(noised(shuffled(ROWS, seed=s), seed=s)) for s in (1, 1, 3)]
        good = fingerprints(noised(shuffled(ROWS, seed=5), seed=9))
        assert judge(originals, good).how == "distribution"
        lost = fingerprints(noised(shuffled(ROWS[1:], seed=5), seed=9))
        assert judge(originals, lost).equivalent is False
        mixed = [(row[0], *other[1:]) for row, other in zip(ROWS, [*ROWS[1:], ROWS[0]], strict=True)]
        assert judge(originals, fingerprints(noised(shuffled(mixed, seed=5), seed=9, size=0.5))).equivalent is not True

    def test_frozen_values_are_found(self) -> None:
        found = judge(augmenting(), fingerprints(noised(plain(ROWS), seed=9, anew=False), fix="cache@Map"))
        assert found.equivalent is False
        assert "not drawn anew" in found.sentence

    def test_values_that_the_original_keeps_must_be_kept(self) -> None:
        originals = [fingerprints(noised(plain(ROWS), seed=seed, anew=False)) for seed in (1, 2, 3)]
        assert judge(originals, fingerprints(noised(plain(ROWS), seed=9, anew=False))).how == "distribution"
        assert judge(originals, fingerprints(noised(plain(ROWS), seed=9))).equivalent is False

    def test_one_draw_for_several_samples_is_found(self) -> None:
        rng = np.random.default_rng(5)
        kept: list[Any] = []

        def pairs(shape: Any) -> Any:
            if kept:
                return kept.pop()
            kept.append(rng.standard_normal(shape))
            return kept[0]

        rows = samples(400)
        originals = [fingerprints(noised(plain(rows), seed=seed)) for seed in (1, 2, 3)]
        assert judge(originals, fingerprints(noised(plain(rows), seed=9))).how == "distribution"
        found = judge(originals, fingerprints(noised(plain(rows), seed=9, draw=pairs)))
        assert found.equivalent is False
        assert "correlated" in found.sentence

    def test_other_noise_is_found(self) -> None:
        rows = samples(300)
        originals = [fingerprints(noised(plain(rows), seed=seed)) for seed in (1, 2, 3)]
        for size in (0.0, 0.2, 1.0):
            assert judge(originals, fingerprints(noised(plain(rows), seed=9, size=size))).equivalent is False
        shifted = changed(noised(plain(rows), seed=9), lambda row: (row[0] + np.float32(0.3), *row[1:]))
        assert judge(originals, fingerprints(shifted)).equivalent is False

    def test_what_is_not_drawn_must_be_the_same(self) -> None:
        wrong = changed(noised(plain(ROWS), seed=9), lambda row: (row[0], row[1] + 1, row[2]))
        found = judge(augmenting(), fingerprints(wrong))
        assert found.equivalent is False
        assert "does not vary" in found.sentence

    def test_too_few_rows_tell_nothing(self) -> None:
        originals = [fingerprints(noised(plain(ROWS[:4]), seed=seed)) for seed in (1, 2, 3)]
        found = judge(originals, fingerprints(noised(plain(ROWS[:4]), seed=9)))
        assert found.equivalent is None
        assert "at least 20" in found.sentence

    def test_draws_of_a_whole_batch_are_no_more_than_one(self) -> None:
        """A scale for each batch: rows of a batch are alike, which no test may take for another distribution."""

        def scaled(seed: int) -> Run:
            rng = np.random.default_rng(seed)
            return [
                [[((row[0] * scale).astype(np.float32), *row[1:]) for row in batch] for batch in epoch]
                for epoch in plain(samples(400), batch=40)
                for scale in [rng.uniform(0.5, 2.0)]
            ]

        originals = [fingerprints(scaled(seed)) for seed in (1, 2, 3)]
        for seed in range(10, 20):
            assert judge(originals, fingerprints(scaled(seed))).equivalent is not False

    def test_draws_of_a_whole_epoch_are_too_few(self) -> None:
        def scaled(seed: int) -> Run:
            rng = np.random.default_rng(seed)
            return [
                [[((row[0] * scale).astype(np.float32), *row[1:]) for row in batch] for batch in epoch]
                for epoch in plain(samples(200), epochs=2)
                for scale in [rng.uniform(0.5, 2.0)]
            ]

        originals = [fingerprints(scaled(seed)) for seed in (1, 2, 3)]
        for seed in range(10, 16):
            assert judge(originals, fingerprints(scaled(seed))).equivalent is None

    def test_coins_are_counted(self) -> None:
        def coins(seed: int, rate: float = 0.5) -> Run:
            rng = np.random.default_rng(seed)
            return changed(plain(samples(300)), lambda row: (*row[1:], np.int64(rng.random() < rate)))

        originals = [fingerprints(coins(seed)) for seed in (1, 2, 3)]
        assert judge(originals, fingerprints(coins(9))).how == "distribution"
        assert judge(originals, fingerprints(coins(9, rate=0.8))).equivalent is False
        frozen = coins(9)
        assert judge(originals, fingerprints([frozen[0]] * 3)).equivalent is False

    def test_what_cannot_be_counted_is_not_known(self) -> None:
        def crops(seed: int) -> Run:
            rng = np.random.default_rng(seed)
            return changed(plain(ROWS), lambda row: (*row[1:], np.int64(rng.integers(1 << 60))))

        found = judge([fingerprints(crops(seed)) for seed in (1, 2, 3)], fingerprints(crops(9)))
        assert (found.equivalent, found.how) == (None, "unknown")


class TestUnreadable:
    def test_a_component_without_bits_leaves_a_doubt(self) -> None:
        fields = {"unknown": {"[1]": "a variant has no bits"}}
        found = judge(three(plain(ROWS), **fields), fingerprints(plain(ROWS), **fields))
        assert (found.equivalent, found.how) == (None, "unknown")
        assert "a variant has no bits" in found.sentence

    def test_unless_all_else_differs(self) -> None:
        fields = {"unknown": {"[1]": "a variant has no bits"}}
        assert judge(three(plain(ROWS), **fields), fingerprints(plain(ROWS[1:]), **fields)).equivalent is False

    def test_a_step_without_a_loss_is_no_such_component(self) -> None:
        fields = {"unknown": {"losses": "the step returns none"}}
        assert judge(three(plain(ROWS), **fields), fingerprints(plain(ROWS), **fields)).equivalent is True


class TestSpecs:
    def test_a_static_shape_may_be_less_specific(self) -> None:
        spec = "TensorSpec(shape=(4, 8), dtype=tf.float32, name=None)"
        known = three(plain(ROWS), spec=spec)
        assert judge(known, fingerprints(plain(ROWS), spec=spec.replace("4", "None"))).equivalent is True
        assert judge(known, fingerprints(plain(ROWS), spec=spec.replace("(4", "(5"))).equivalent is False

    def test_another_number_of_components_is_another_kind(self) -> None:
        found = judge(three(plain(ROWS)), fingerprints(changed(plain(ROWS), lambda row: row[:2])))
        assert found.equivalent is False
        assert "components" in found.sentence


DENSE = "TensorSpec(shape=(None, 80), dtype=tf.float32, name=None)"
RAGGED = "RaggedTensorSpec(TensorShape([None, None]), tf.int32, 1, tf.int64)"


@pytest.mark.parametrize(
    ("original", "fixed"),
    [
        (DENSE, DENSE),
        (DENSE, DENSE.replace("None, 80", "4, 80")),
        (DENSE, DENSE.replace("(None, 80)", "<unknown>")),
        (DENSE, DENSE.replace("name=None", "name='mel'")),
        (f"({DENSE}, {RAGGED})", f"({DENSE}, {RAGGED.replace('None, None', '4, None')})"),
        (RAGGED, RAGGED.replace("TensorShape([None, None])", "TensorShape(None)")),
        ("TensorSpec(shape=(), dtype=tf.string, name=None)", "TensorSpec(shape=(),  dtype=tf.string)"),
    ],
)
def test_shapes_may_be_more_or_less_specific_and_names_mean_nothing(original: str, fixed: str) -> None:
    assert spec_difference(original, fixed) is None
    assert spec_difference(fixed, original) is None


@pytest.mark.parametrize(
    ("original", "fixed", "word"),
    [
        (DENSE, DENSE.replace("80", "40"), "another shape"),
        (DENSE, DENSE.replace("None, 80", "None, 80, 1"), "another shape"),
        (DENSE, DENSE.replace("float32", "float16"), "another kind"),
        (DENSE, f"({DENSE},)", "another kind"),
        (f"{{'a': {DENSE}}}", f"{{'b': {DENSE}}}", "another kind"),
        (RAGGED, RAGGED.replace("int32, 1", "int32, 2"), "another kind"),
    ],
)
def test_structure_dtypes_and_sizes_may_not(original: str, fixed: str, word: str) -> None:
    assert word in (spec_difference(original, fixed) or "")
    assert spec_difference(fixed, original) is not None
