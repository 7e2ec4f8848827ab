"""Every fix of parallelism and buffering that applies to a pipeline of the benchmark's corpus yields the same elements.

One case of each kind of graph in the normal run, all of them among the slow tests. The corpus sleeps and computes by
design, so few batches are compared.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.tf.equality import same_elements
from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph import apply

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks" / "diagnosis"))
sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks" / "diagnosis" / "corpus"))

import child
import known

APPLIES = {
    "file_after_file": {"parallel-interleave:6", "buffer:3", "thread-pool:8"},
    "prefetches_everywhere": {"parallel-map:4", "buffer:3", "thread-pool:8"},
    "waits_for_the_slowest": {"buffer:3", "thread-pool:8"},
    "no_prefetch": {"parallel-map:4", "prefetch:3", "thread-pool:8"},
    "generator_that_waits": {"buffer:3", "thread-pool:8"},
}
"""Case -> the fixes that have something to do there."""
FIXES = (
    "parallel-map:4",
    "parallel-interleave:6",
    "prefetch:3",
    "buffer:3",
    "thread-pool:8",
)
ALL = [pytest.param(case, id=case.name, marks=() if case.name in APPLIES else pytest.mark.slow) for case in known.CASES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("corpus")


def test_the_cases_are_of_the_corpus():
    assert set(APPLIES) <= {case.name for case in known.CASES}


@pytest.mark.filterwarnings("ignore")  # a corpus of faults: TensorFlow warns of some of them
@pytest.mark.parametrize("case", ALL)
def test_what_applies_yields_the_same(case, folder):
    applied = {}
    for fix in FIXES:
        original = child.load(case, folder, comparable=True).dataset
        try:
            fixed = apply(original, fix)
        except InvalidInputError as error:
            assert "does not apply" in str(error)  # noqa: PT017 - any other refusal is a fault of the rewrite
        else:
            applied[fix] = same_elements(original, fixed, count=2)
    assert set(applied.values()) == {True}
    assert set(applied) == APPLIES.get(case.name, set(applied))
