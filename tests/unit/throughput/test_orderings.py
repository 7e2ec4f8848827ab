"""Which shuffles and repeats may as well come after the maps behind them."""

from __future__ import annotations

import pytest

from xttsbench.throughput.orderings import Chain, chain_of

TYPES = {
    "files": "TensorSliceDataset",
    "shuffle": "ShuffleDatasetV3",
    "repeat": "RepeatDataset",
    "decode": "MapDataset",
    "ahead": "PrefetchDataset",
    "scale": "ParallelMapDatasetV2",
    "batch": "BatchDatasetV2",
    "filter": "FilterDataset",
    "zip": "ZipDataset",
    "options": "OptionsDataset",
}


def found(*names, at=None, also=()):
    inputs = {name: (before,) if before else () for name, before in zip(names, (None, *names), strict=False)}
    return chain_of(at or names[-1], TYPES, inputs | dict(also))


@pytest.mark.parametrize(
    ("names", "chain"),
    [
        (["files", "shuffle", "decode"], Chain(("shuffle",), ("decode",), "files")),
        (["files", "repeat", "shuffle", "decode"], Chain(("repeat", "shuffle"), ("decode",), "files")),
        (
            ["files", "shuffle", "decode", "ahead", "repeat", "scale"],
            Chain(("shuffle", "repeat"), ("decode", "ahead", "scale"), "files"),
        ),
        (["files", "decode", "shuffle", "scale"], Chain(("shuffle",), ("scale",), "decode")),
        (["files", "shuffle", "options", "scale"], Chain(("shuffle",), ("options", "scale"), "files")),
        (["files", "filter", "repeat", "decode"], Chain(("repeat",), ("decode",), "filter")),
        (["files", "shuffle", "batch", "repeat", "decode"], Chain(("repeat",), ("decode",), "batch")),
    ],
)
def test_orderings_with_nothing_but_maps_behind_them_may_be_moved(names, chain) -> None:
    assert found(*names) == chain


@pytest.mark.parametrize(
    "names",
    [
        ["files", "decode"],
        ["files", "shuffle"],
        ["files", "shuffle", "ahead"],
        ["files", "shuffle", "decode", "batch"],
        ["files", "shuffle", "filter", "decode"],
        ["files", "shuffle", "batch", "decode"],
    ],
)
def test_others_stay(names) -> None:
    assert found(*names) == Chain((), (), names[-1])


def test_what_others_read_as_well_stays_theirs() -> None:
    assert not found("files", "shuffle", "decode", also={"zip": ("shuffle", "decode")}).orderings
    assert found("files", "shuffle", "decode", also={"zip": ("decode", "decode")}).orderings
