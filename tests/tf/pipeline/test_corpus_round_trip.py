"""Every pipeline of the benchmark's corpus survives the way through its graph, and its tuned version yields the same.

One case of each kind of graph in the normal run, all of them among the slow tests. The corpus sleeps and computes by
design, so few batches are compared.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks" / "diagnosis"))
sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks" / "diagnosis" / "corpus"))

import child
import known

SAMPLE = (
    "gil_map_in_turn",
    "generator_that_waits",
    "interleave_in_turn",
    "cacheable_before_augmentation",
    "tiny_elements",
    "padded_to_the_longest",
    "traced_for_every_length",
    "not_cached_and_in_turn",
    "keras_in_memory",
)
BATCHES = 3
ALL = [pytest.param(case, id=case.name, marks=() if case.name in SAMPLE else pytest.mark.slow) for case in known.CASES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("corpus")


def test_the_sample_is_of_the_corpus():
    assert set(SAMPLE) <= {case.name for case in known.CASES}


@pytest.mark.filterwarnings("ignore")  # a corpus of faults: TensorFlow warns of some of them
@pytest.mark.parametrize("case", ALL)
def test_graph_and_back_and_tuned_yield_the_same(case, folder):
    found = child.trip(case, folder, BATCHES)
    assert found == {"round_trip": True} | ({} if case.healthy else {"tuned_is_the_same": True})
