"""Losses that do not allow a gain that was measured beside them, and that no stored run has such."""

from __future__ import annotations

from pathlib import Path

import pytest

from xttsbench.diagnosis import build_diagnosis
from xttsbench.diagnosis.verdict import contradiction, gains
from xttsbench.execution.journal import TRIALS
from xttsbench.records.fix import FixResult
from xttsbench.records.report import Variant
from xttsbench.workflows.runs import read_run, report_of

STORED = sorted(Path("reports/reference").rglob(TRIALS))


def waiting(build):
    """A step that waits for a third of its time: 1.5 times as fast at most."""
    return build_diagnosis([build.ladder(wait=0.015, step=0.03)], {"cpu": {"allowed_cpus": 2.0}})


def test_all_losses_together_say_what_a_step_could_be_at_most(build) -> None:
    found = waiting(build)
    assert found.at_most.estimate == pytest.approx(1.5, abs=0.02)
    assert found.at_most.low < found.at_most.estimate < found.at_most.high
    slowed = build_diagnosis([build.ladder(step=0.03, alone=0.015)], {"cpu": {"allowed_cpus": 64.0}})
    assert slowed.bottleneck == "compute"
    assert slowed.at_most.estimate == pytest.approx(2.0, abs=0.1), "the slowdown for no known reason is shown, too"


def test_a_gain_that_the_losses_do_not_allow_is_said_in_one_sentence(build) -> None:
    found = waiting(build)
    measured = {"prefetch": build.estimate(1.4), "cache": build.estimate(2.0), "native": build.estimate(1.8)}
    said = contradiction(found, measured)
    assert said.startswith(
        "the attribution and a measured gain contradict each other, and the gain is the one to trust"
    )
    assert "a cache in memory was 2.00 times as fast (1.96 to 2.04)" in said
    assert ". " not in said
    assert contradiction(found, {"cache": build.estimate(1.6, 0.1)}) is None, "the intervals meet"
    assert contradiction(found, {}) is None


def test_a_dataset_alone_is_all_loss_and_contradicts_nothing(build) -> None:
    alone = build.trial("ladder", build.segment(wait_s=[0.1] * 40))
    assert contradiction(build_diagnosis([alone], {}), {"cache": build.estimate(90.0)}) is None


def test_only_gains_of_the_input_on_the_same_accelerator_count(build) -> None:
    def fix(name: str, *fixes: str) -> FixResult:
        speedup = build.estimate(3.0)
        return FixResult(name=name, fixes=fixes, what=name, outcome="accepted", why="", verified_speedup=speedup)

    def arm(name: str, accelerator: str = "real device", role: str = "candidate", **config: str) -> Variant:
        return Variant(
            id=name, role=role, group="g", accelerator=accelerator, config=config, blocks=3, status="ok",
            effect=None if role == "baseline" else build.estimate(3.0),
        )  # fmt: skip

    fixes = [fix("cache", "cache"), fix("step:xla", "step:xla"), fix("both", "cache", "step:xla")]
    arms = [
        arm("as it is", role="baseline", loader="a", mode="graph"),
        arm("other loader", loader="b", mode="graph"),
        arm("other step", loader="b", mode="xla"),
        arm("elsewhere", "emulated accelerator", loader="b", mode="graph"),
    ]
    assert set(gains(fixes, arms, "real device")) == {"cache", "other loader"}


def test_there_are_stored_runs() -> None:
    assert len(STORED) >= 4


@pytest.mark.parametrize("journal", STORED, ids=lambda path: path.parent.name)
def test_no_stored_run_contradicts_itself(journal: Path) -> None:
    report = report_of(read_run(journal.parent))
    assert not any("contradict" in warning for warning in report.warnings)
