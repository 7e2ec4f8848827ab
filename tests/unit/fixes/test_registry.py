"""The registry of fixes: what may follow each name, which order they have together, and what is said of each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.registry import SPECS, checked, combined, said
from xttsbench.records.fix import Fix, FixSet

USES = {"name": [""], "name[:n]": ["", ":3"], "name:n": [":3"], "name@op": ["@MapDataset/_4"]}
OF_DATASET = {name: spec for name, spec in SPECS.items() if not name.startswith(("step:", "dataset"))}


@pytest.mark.parametrize("name", [name + tail for name, spec in OF_DATASET.items() for tail in USES[spec.form]])
def test_every_name_is_understood(name: str) -> None:
    (fix,) = checked(name)
    assert fix.kind in SPECS
    assert str(fix) == name
    assert (fix.number, fix.op) == (3 if ":" in name else None, "MapDataset/_4" if "@" in name else None)


@pytest.mark.parametrize(("name", "of"), [("dataset", "a script's own loop"), ("step:xla", "the training step")])
def test_what_is_none_of_a_dataset_s_is_refused(name: str, of: str) -> None:
    with pytest.raises(InvalidInputError, match=f"is one of {of}, not of the dataset"):
        checked(name)


@given(st.text(max_size=20))
def test_any_text_is_a_fix_or_refused_in_a_sentence(text: str) -> None:
    try:
        kinds, sentence = {fix.kind for fix in checked(text)}, "."
    except InvalidInputError as error:
        kinds, sentence = set(), str(error)
    assert kinds <= SPECS.keys()
    assert sentence.endswith(".")


@given(st.integers(1, 2**31 - 1), st.sampled_from([name for name, spec in OF_DATASET.items() if ":n" in spec.form]))
def test_a_number_is_read_as_it_is_written(number: int, name: str) -> None:
    assert checked(f"{name}:{number}") == FixSet((Fix.of(name, number),))


@pytest.mark.parametrize("text", ["step:xla", "step:no-xla", "step:several:16"])
def test_a_fix_of_the_step_is_read_as_it_is_written(text: str) -> None:
    fix = Fix.parse(text)
    assert (str(fix), fix.kind in SPECS, fix.is_of_step) == (text, True, True)
    assert fix.number == (16 if text.endswith("16") else None)


def test_of_two_of_a_kind_the_first_counts_and_of_caches_too() -> None:
    sets = [FixSet.parse(text) for text in ("prefetch + cache@a", "thread-pool:8 + cache@b", "prefetch:4")]
    assert str(combined(sets)) == "cache@a + prefetch + thread-pool:8"
    assert str(combined([FixSet.parse("step:xla"), FixSet.parse("parallel-map:2")])) == "parallel-map:2 + step:xla"


def test_what_fixes_do_is_said_with_their_numbers_and_places() -> None:
    fixes = FixSet.parse("parallel-map:32 + cache@MapDataset/_4 + prefetch + step:xla")
    assert said(fixes) == (
        "maps in parallel (32 calls), a cache in memory after MapDataset/_4, a prefetch at the end, "
        "the step through XLA"
    )


def test_kinds_that_are_tried_unpredicted_have_a_place_each() -> None:
    ranks = sorted(spec.rank for spec in SPECS.values() if spec.rank is not None)
    assert len(set(ranks)) == len(ranks)
