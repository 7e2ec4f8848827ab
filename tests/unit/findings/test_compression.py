from __future__ import annotations

import pytest

from tests.unit.findings.made import only, op, silent
from xttsbench.findings.compression import compressed_records
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline


def read(*compressions: str | None, cost_s: float = 0.5, cached: bool = False) -> Pipeline:
    """Files read with some kinds of compression, and a map that takes 0.5 s a batch."""
    inner = tuple(op(f"r{number}", "TFRecordDataset", compression=kind) for number, kind in enumerate(compressions))
    where = Location(file="data.py", line=7)
    return Pipeline(
        ops=(
            op("Read/_1", "FlatMapDataset", cost_s=cost_s, inner=inner, location=where, cached=cached),
            op("Map/_2", "MapDataset", "Read/_1", cost_s=0.5),
        )
    )


def test_records_that_are_decompressed_while_the_step_waits(evidence) -> None:
    found = only(compressed_records, evidence("input", pipeline=read("GZIP")))
    assert (found.rule, found.severity, found.limiting) == ("compressed-records", "warning", False)
    assert (found.location.file, found.location.line, found.location.op) == ("data.py", 7, "Read/_1")
    # The map, which TensorFlow runs on both processors, has half the pace of its cost.
    assert found.evidence == pytest.approx({"compression": "GZIP", "cost_share": 0.5, "pace_share": 2 / 3})
    assert "(GZIP)" in found.title


def test_several_kinds_are_named_once_each(evidence) -> None:
    found = only(compressed_records, evidence("input", pipeline=read("ZLIB", "GZIP", "ZLIB")))
    assert found.evidence["compression"] == "GZIP and ZLIB"


@pytest.mark.parametrize(
    ("bottleneck", "pipeline"),
    [
        ("compute", read("GZIP")),
        ("input", read(None)),
        ("input", read("GZIP", cost_s=0.1)),
        ("input", read("GZIP", cached=True)),
    ],
    ids=["nothing waits for it", "not compressed", "a small part of the pace", "behind a full cache"],
)
def test_it_is_silent(evidence, bottleneck: str, pipeline: Pipeline) -> None:
    assert silent(compressed_records, evidence(bottleneck, pipeline=pipeline))
