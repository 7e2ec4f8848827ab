"""The verdict in a record and in one sentence."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from xttsbench.analysis.attribution import StepFacts
from xttsbench.analysis.pooling import Pooled
from xttsbench.diagnosis import Diagnosis, build_diagnosis
from xttsbench.diagnosis.verdict import summary, verdict
from xttsbench.evidence import Compared
from xttsbench.records.base import Estimate, Location
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.records.report import Bottleneck
from xttsbench.records.trial import StackLine

HOSTILE = "{share} {0} {detail!r} %s %(x)s <script> \x1b[31m"


def gathered(evidence, **changes) -> Diagnosis:
    names = ("wall_s", "median", "p95", "samples")
    figures = {name: Pooled(0.1, np.linspace(0.09, 0.11, 100)) for name in names}
    return Diagnosis(evidence, **({"probability": 0.9, "figures": figures} | changes))


def slow_map(name: str = "Map/_3", file: str | None = "data.py") -> Pipeline:
    slow = PipelineOp(name=name, op="MapDataset", stateful=True, cost_s=0.5, location=Location(file=file, line=7))
    return Pipeline(ops=(PipelineOp(name="Range/_1", op="RangeDataset", cost_s=0.1), slow))


@pytest.mark.parametrize("bottleneck", [name for name in get_args(Bottleneck) if name != "inconclusive"])
def test_every_bottleneck_is_one_sentence_with_a_number(evidence, bottleneck: str) -> None:
    text = summary(gathered(evidence(bottleneck)))
    assert text.endswith(".")
    assert text.count(". ") == 0
    assert re.search(r"\b(50|100)%" if bottleneck == "compute" else r"\b50%", text)
    assert "{" not in text


def test_input_names_the_op_and_the_line(evidence) -> None:
    text = summary(gathered(evidence("input", pipeline=slow_map())))
    assert text == "The step waits 50% of its time for data; the most costly op is Map/_3 (data.py:7)."
    text = summary(gathered(evidence("input", pipeline=slow_map(file=None))))
    assert text.endswith("the most costly op is Map/_3.")


def test_a_bare_dataset_gives_its_rate(evidence) -> None:
    text = summary(gathered(evidence("input", has_step=False, pipeline=slow_map())))
    assert "10 batches/s" in text
    fast = replace(evidence("input", has_step=False, pipeline=slow_map()), wall_s=0.00062)
    assert "1,610 batches/s" in summary(gathered(fast))
    assert "Map/_3 (data.py:7)" in text
    assert "waits" not in text


def test_a_dataset_with_an_emulated_accelerator_waits(evidence) -> None:
    assert "waits 50%" in summary(gathered(evidence("input", has_step=False, emulated=True)))


def test_the_limit_is_the_emulated_accelerator_only_where_its_wait_is_most_of_the_step(evidence) -> None:
    computes = evidence("compute", emulated=True)
    waits = gathered(computes, accelerator_utilization=Estimate(estimate=0.97, low=0.96, high=0.98))
    assert summary(waits) == "The emulated accelerator is the limit (100% of the step); it hardly waits."
    works = gathered(computes, accelerator_utilization=Estimate(estimate=0.05, low=0.04, high=0.06))
    assert summary(works) == "The target's own step is the limit (100%); the emulated accelerator waits for 5%."


def test_dispatch_says_what_compiling_gives_or_why_that_is_not_known(evidence, build) -> None:
    facts = StepFacts(has_step=True, eager=True)
    graph = {"graph": Compared("graph", "ok", speedup=build.estimate(3.25))}
    assert "compiled into one tf.function" in summary(gathered(evidence("dispatch", facts=facts, modes=graph)))
    failed = {"graph": Compared("graph", "raised")}
    assert "could not be compiled" in summary(gathered(evidence("dispatch", facts=facts, modes=failed)))
    assert summary(gathered(evidence("dispatch", facts=facts))) == (
        "The step spends 50% of its time launching ops from Python or computing; which of the two is not known: the "
        "compiled step was not timed by itself."
    )
    slow = build.eager()
    told = summary(gathered(evidence("dispatch", facts=facts, anatomy=slow)))
    assert f"; launching its {slow.eager_ops_per_step:.0f} ops takes " in told
    assert summary(gathered(evidence("dispatch"))).startswith("Handing over batches to the compiled step takes 50%")
    short = evidence("dispatch", parts={"dispatch": 0.017, "compute": 0.083})
    assert summary(gathered(short)).endswith("takes 17% of its time, its largest loss (computing takes 83%).")


def test_compile_counts_the_steps(evidence, build) -> None:
    steps = build.steps(step_s=[0.1] * 10, traces=[0, 1] * 5)
    assert "(5 of 10 steps)" in summary(gathered(evidence("compile", steps=steps)))


def test_host_names_the_line(evidence, build) -> None:
    lines = tuple(
        StackLine(file=f"{kind}.py", line=5, function="f", kind=kind, share=0.4, steps_share=1.0)
        for kind in ("function", "io", "python")
    )
    found = evidence("host", anatomy=build.compiled(lines=lines))
    assert "most of it at io.py:5" in summary(gathered(found))


def test_inconclusive_says_why(evidence) -> None:
    text = summary(gathered(evidence("inconclusive"), why_undecided="only 2 step(s) were measured"))
    assert text == "No bottleneck can be named: only 2 step(s) were measured."


@pytest.mark.parametrize("bottleneck", ["input", "host", "dispatch", "inconclusive"])
def test_hostile_names_stay_text(evidence, build, bottleneck: str) -> None:
    line = StackLine(file=HOSTILE, line=5, function=HOSTILE, kind="python", share=0.4, steps_share=1.0)
    found = evidence(bottleneck, pipeline=slow_map(HOSTILE, HOSTILE), anatomy=build.compiled(lines=(line,)))
    text = summary(gathered(found, why_undecided=HOSTILE))
    assert (HOSTILE in text) is (bottleneck != "dispatch")


def test_the_record_holds_the_figures_and_the_parts(evidence) -> None:
    found = verdict(gathered(evidence("input")))
    assert (found.bottleneck, found.confidence) == ("input", 0.9)
    assert found.step_time_s.estimate == 0.1
    assert found.step_time_s.low == pytest.approx(0.0905)
    assert found.attribution_s.input == 0.05
    assert found.attribution_s.compute == 0.05
    assert found.accelerator_utilization is None


def test_without_a_figure_everything_is_none(build) -> None:
    found = verdict(build_diagnosis([build.trial("ladder", status="empty", cause="no element came")], {}))
    assert found.bottleneck == "inconclusive"
    assert found.summary == "Nothing could be concluded: no element came."
    assert found.confidence == 0.0
    assert {value for name, value in found if name.endswith(("_s", "fraction", "utilization"))} == {None}


def test_the_parts_add_up_to_the_step_time_of_the_record(build) -> None:
    found = verdict(build_diagnosis([build.ladder(wait=0.02, step=0.01)], {}))
    assert sum(dict(found.attribution_s).values()) == pytest.approx(found.step_time_s.estimate)
    without_residual = sum(dict(found.attribution_s).values()) - found.attribution_s.residual
    assert without_residual == pytest.approx(found.step_time_s.estimate, rel=0.03)


def test_a_loss_beside_more_computing_says_why_it_is_the_bottleneck(evidence) -> None:
    parts = {"input": 0.029, "compute": 0.071}
    text = summary(gathered(evidence("input", parts=parts)))
    why = "its largest loss (computing takes 71%)"
    assert text.startswith(f"The step waits 29% of its time for data, {why}")
    text = summary(gathered(evidence("transfer", parts={"transfer": 0.02, "compute": 0.08})))
    assert text.endswith("20% of the step, its largest loss (computing takes 80%).")
    assert "avoided" not in summary(gathered(evidence("input", parts={"input": 0.06, "compute": 0.04})))


def test_a_share_is_never_more_than_all(evidence) -> None:
    wide = Estimate(estimate=0.9, low=0.7, high=1.2)
    assert verdict(gathered(evidence("compute"), accelerator_utilization=wide)).accelerator_utilization.high == 1.0
