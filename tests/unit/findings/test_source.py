"""Rules from source facts: each tells its place, none is limiting whatever the bottleneck."""

from __future__ import annotations

import pytest

from xttsbench.findings import RULES, find
from xttsbench.findings.source import autotune_arithmetic, late_runtime_config, memory_growth_conflict
from xttsbench.records.base import Location
from xttsbench.records.code import SourceFact
from xttsbench.records.trial import Devices
from xttsbench.targets.source.scan import scan_text

GPU = Devices(gpus=("GPU:0",))


def fact(kind: str, **fields: object) -> SourceFact:
    return SourceFact(**({"kind": kind, "file": "data.py", "line": 7, "text": "x = 1", "detail": "why"} | fields))


@pytest.mark.parametrize(
    ("kind", "detail", "rule", "severity"),
    [
        ("autotune-arithmetic", "AUTOTUNE is -1", "autotune-arithmetic", "warning"),
        ("dead-option", "options.x is not in this TensorFlow", "dead-option", "warning"),
        ("dead-option", "options.x is the old name of options.y", "dead-option", "info"),
        ("option-never-applied", "never handed to with_options", "dead-option", "warning"),
        ("option-never-applied", ".prefetch() returns another dataset", "dead-option", "warning"),
        ("late-environment", "OMP_NUM_THREADS is set after", "late-runtime-config", "warning"),
        ("late-threads", "the threads (4 wanted)", "late-runtime-config", "warning"),
        ("own-environment", "OMP_NUM_THREADS is set before", "late-runtime-config", "info"),
        ("fixed-npy-header", "taken to be 128 bytes", "fixed-npy-header", "warning"),
        ("early-workers", "runs when its 4 workers may have read", "early-workers", "critical"),
        ("growth-with-limit", "line 3 gives a limit", "memory-growth-conflict", "warning"),
    ],
)
@pytest.mark.parametrize("bottleneck", ["input", "compute", "host", "inconclusive"])
def test_a_fact_becomes_one_finding_that_is_never_limiting(
    evidence, kind: str, detail: str, rule: str, severity: str, bottleneck: str
) -> None:
    told = fact(kind, detail=detail)
    found = [one for one in find(evidence(bottleneck, source=(told, told), devices=GPU)) if one.rule == rule]
    (finding,) = found
    assert (finding.severity, finding.limiting) == (severity, False)
    assert finding.location == Location(file="data.py", line=7)
    assert detail in finding.title
    assert finding.remedy
    assert finding.predicted_speedup is None


def test_no_fact_no_finding(evidence) -> None:
    assert [finding for rule in RULES["In the source"] for finding in rule(evidence("input"))] == []


def test_a_log_level_that_comes_late_is_worth_little(evidence) -> None:
    late = fact("late-environment", text="os.environ['TF_CPP_MIN_LOG_LEVEL'] = '2'")
    (found,) = late_runtime_config(evidence("input", source=(late,)))
    assert found.severity == "info"


def test_the_threads_in_effect_stand_beside_those_wanted(evidence) -> None:
    devices = Devices(inter_op_threads=2, intra_op_threads=3)
    (found,) = late_runtime_config(evidence("input", source=(fact("late-threads"),), devices=devices))
    assert (found.evidence["inter_op_threads"], found.evidence["intra_op_threads"]) == (2, 3)


def test_how_to_measure_with_an_own_variable(evidence) -> None:
    told = fact("own-environment", detail="KERAS_BACKEND is set before TensorFlow is imported")
    (found,) = late_runtime_config(evidence("input", source=(told,)))
    assert "KERAS_BACKEND=... xttsbench diagnose" in found.remedy


def test_growth_beside_a_limit_harms_nobody_without_a_gpu(evidence) -> None:
    told = (fact("growth-with-limit"),)
    assert [one.severity for one in memory_growth_conflict(evidence("input", source=told))] == ["info"]


def test_from_text_to_finding(evidence) -> None:
    text = "import tensorflow as tf\nds = tf.data.Dataset.range(9)\nds = ds.prefetch(min(8, tf.data.AUTOTUNE))\n"
    (found,) = autotune_arithmetic(evidence("input", source=scan_text("a.py", text)))
    assert found.location.line == 3
    assert found.evidence["text"] == "ds = ds.prefetch(min(8, tf.data.AUTOTUNE))"
