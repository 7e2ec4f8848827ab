"""Hand-built runs with simulated, seeded steps: a stalling input, an eager step, compared arms, and nothing at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.unit.conftest import verdict
from xttsbench.records.base import Estimate, Location
from xttsbench.records.fix import FixResult
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.records.readings import GpuReadings, Readings
from xttsbench.records.report import AA, Attribution, Experiment, Finding, Oscillation, Report, Variant, Verdict, WarmUp
from xttsbench.records.trial import Devices, Segment, TrialError, TrialRecord, TrialSpec
from xttsbench.reporting.document import Block, Document, Section, Table

HOSTILE = (
    "evil|`name`\x1b[31m[red]x[/red]<script>alert(1)</script>\r\nnext_line \x00\x07 $\\frac{ \u202e &amp; _em_ **b**"
)


def section(document: Document, title: str) -> Section:
    """The section of that title, wherever it stands."""
    return next(found for found in sections(document.blocks) if found.title == title)


def sections(blocks: Sequence[Block]) -> Iterator[Section]:
    """All sections, the inner ones too."""
    for block in blocks:
        if isinstance(block, Section):
            yield block
            yield from sections(block.blocks)


def one(within: Section | Document, kind: type[Any]) -> Any:
    """The only block of a kind."""
    (found,) = (block for block in within.blocks if isinstance(block, kind))
    return found


def words(table: Table) -> list[tuple[str, ...]]:
    """The rows as text."""
    return [tuple(cell.text for cell in row.cells) for row in table.rows]


class Run(NamedTuple):
    report: Report
    trials: tuple[TrialRecord, ...]


def changed(record: Any, **fields: Any) -> Any:
    """The record with other fields."""
    return record.model_copy(update=fields)


def estimate(value: float, spread: float = 0.03) -> Estimate:
    return Estimate(estimate=value, low=value * (1 - spread), high=value * (1 + spread))


def fix(name: str, what: str, outcome: str, why: str = "", **more: Any) -> FixResult:
    return FixResult(name=name, fixes=tuple(name.split(" + ")), what=what, outcome=outcome, why=why, **more)


def make_segment(
    wait_s: Sequence[float], step_s: Sequence[float], *, emulated_s: float = 0.0, busy: float = 0.5, warmup: int = 0
) -> Segment:
    """Steps back to back; ``busy`` is the processor time over the wall time."""
    wait_ns, step_ns = ((np.asarray(seconds) * 1e9).astype(int) for seconds in (wait_s, step_s))
    wall_ns = wait_ns + step_ns + 40_000
    end_ns = 5_000_000_000 + np.cumsum(wall_ns)
    columns = {
        "start_ns": end_ns - wall_ns + 40_000,
        "wall_ns": wall_ns,
        "wait_ns": wait_ns,
        "step_ns": step_ns,
        "emulated_ns": np.full(wall_ns.size, round(emulated_s * 1e9)),
        "cpu_ns": (busy * wall_ns).astype(int),
        "batch_elements": np.full(wall_ns.size, 20_480),
    }
    return Segment(
        name="as_is",
        columns={name: tuple(values.tolist()) for name, values in columns.items()},
        warmup_steps=warmup,
    )


def make_trial(name: str, *segments: Segment, **fields: Any) -> TrialRecord:
    given = {"status": "ok", "started_utc": "2026-01-02T03:04:05Z", "duration_s": 14.2, **fields}
    return TrialRecord(spec=TrialSpec(trial_id=name, kind="ladder", target="data.py:make"), segments=segments, **given)


def starving_trial(name: str = "b0-ladder", *, seed: int = 1, steps: int = 400) -> TrialRecord:
    """An emulated accelerator of 15 ms behind an input that stalls by 250 ms every 16 steps."""
    rng = np.random.default_rng(seed)
    wait = 0.0012 + 0.0006 * rng.gamma(2.0, size=steps)
    wait[15::16] += 0.25 + 0.01 * rng.standard_normal(wait[15::16].size)
    wait[0] += 0.9
    step = 0.0152 + 0.0002 * rng.gamma(2.0, size=steps)
    step[0] += 1.4
    return make_trial(name, make_segment(wait, step, emulated_s=0.015, warmup=3), devices=Devices(cpus=2))


def starving_run() -> Run:
    report = Report(
        kind="diagnose",
        command="xttsbench diagnose my_project/data.py:make_dataset --accelerator emulated:15",
        created_utc="2026-01-02T03:04:05Z",
        target={"name": "my_project/data.py:make_dataset", "kind": "dataset+step"},
        environment={"cpus": 2, "python": "3.11.9", "memory_total_bytes": 8_000_000_000, "gpus": []},
        verdict=Verdict(
            bottleneck="input",
            summary="The step waits 17.9 ms of 34.2 ms for data: a Python function that reads files runs one at a "
            "time and stalls every 16 steps.",
            confidence=0.998,
            verdict_final_s=47.0,
            step_time_s=estimate(0.0342),
            step_time_median_s=estimate(0.0181, 0.01),
            step_time_p95_s=estimate(0.2672, 0.02),
            input_wait_fraction=estimate(0.523),
            accelerator_utilization=estimate(0.438),
            attribution_s=Attribution(
                input=0.0179,
                dispatch=0.00031,
                compute=0.0152,
                compile=0.0,
                host=0.0004,
                transfer=0.0,
                contention=0.0,
                residual=0.00039,
            ),
        ),
        findings=(
            Finding(
                rule="python-function",
                severity="critical",
                limiting=True,
                title="load_wav reads files under the interpreter lock and holds up every batch",
                location=Location(file="my_project/data.py", line=42, op="ParallelMapDatasetV2"),
                evidence={"cost_s": 0.0169, "cost_share": 0.91, "calls_per_batch": 16, "gil": "blocks", "file_s": None},
                remedy="Read the files with tf.io.read_file, or let the pool have as many threads as calls:\n"
                "  options.threading.private_threadpool_size = 32",
                patch="-    ds = ds.map(load)\n+    ds = ds.map(load, num_parallel_calls=tf.data.AUTOTUNE)",
                predicted_speedup=estimate(2.02),
                verified_speedup=estimate(1.94, 0.02),
                same_data="proved",
            ),
            Finding(
                rule="oscillation",
                severity="warning",
                limiting=True,
                title="The step time repeats every 16 steps: the shuffle buffer is refilled",
                location=Location(op="ShuffleDatasetV3"),
                evidence={"period_steps": 16.0, "variance_share": 0.97},
                remedy="Shuffle file names instead of audio.",
                predicted_speedup=estimate(1.2),
            ),
            Finding(
                rule="gpu-invisible",
                severity="info",
                limiting=False,
                title="TensorFlow sees no GPU; the accelerator is emulated",
                evidence={"built_with_cuda": False},
            ),
        ),
        oscillation=Oscillation(
            cv=0.048,
            p99_over_p50=14.9,
            period_steps=16.0,
            period_s=0.547,
            variance_share=0.97,
            p_value=0.002,
            autocorrelation=-0.062,
            ljung_box_p=1e-12,
            effective_steps=397.0,
            std_over_mean=1.81,
            burstiness=-0.98,
        ),
        arms=(
            Variant(
                id="graph",
                role="baseline",
                blocks=4,
                status="ok",
                step_time_s=estimate(0.0342),
                throughput_per_s=estimate(467.0),
                effect=None,
            ),
            Variant(
                id="eager",
                role="candidate",
                blocks=4,
                status="ok",
                step_time_s=estimate(0.0411),
                throughput_per_s=estimate(389.0),
                effect=estimate(0.83),
                decision="slower",
            ),
            Variant(id="xla", role="candidate", blocks=2, status="out_of_memory", decision="ended"),
        ),
        aa=AA(effect=estimate(1.003, 0.008), noisy=False, smallest_visible_effect=0.021),
        unmeasured={
            "arms.2.step_time_s": "the trial ran out of memory",
            "arms.2.effect": "the trial ran out of memory",
            "findings.1.verified_speedup": "the budget was spent before its turn",
            "readings.gpus": "no NVIDIA driver on this machine",
        },
        accelerator={"kind": "emulated", "label": "emulated, 15 ms per step", "step_s": 0.015},
        ladder=(
            Experiment(name="as_is", what="the target as it is", step_time_s=estimate(0.0342), steps=397, processes=3),
            Experiment(name="input only", what="iterating alone", step_time_s=estimate(0.0181), steps=320, processes=3),
            Experiment(
                name="step only", what="on cached batches", step_time_s=estimate(0.0153), steps=240, processes=3
            ),
        ),
        warm_up=WarmUp(
            first_step_s=2.32,
            steps_cut=3,
            steady_state=True,
            steps_measured=397,
            certified=True,
            trace_s=0.61,
            traces=1,
            xla_compile_s=0.0,
            xla_compiles=0,
        ),
        overhead={
            "overhead_s_per_step": 0.0000118,
            "share_of_step": 0.00034,
            "method": "watch toggled on and off in one process",
        },
        readings={"cpu_share": 0.46, "rss_bytes": 612_000_000, "thread_group_cpu_s": {"tf_data": 3.1, "python": 2.2}},
        pipeline=Pipeline(
            ops=(
                PipelineOp(name="TensorSlice/_1", op="TensorSliceDataset", cost_s=0.00002),
                PipelineOp(
                    name="Map/_2",
                    op="ParallelMapDatasetV2",
                    parallelism=-1,
                    chosen_parallelism=2,
                    cost_s=0.0169,
                    location=Location(file="my_project/data.py", line=42),
                ),
                PipelineOp(name="Prefetch/_3", op="PrefetchDataset", buffer_size=-1),
            )
        ).model_dump(),
        trials=tuple(
            {"trial": f"b{block}-ladder", "status": "ok", "cause": None, "duration_s": 14.2} for block in range(3)
        ),
        warnings=("Only 3 processes were measured in the budget; 6 are needed for a test between configurations.",),
    )
    return Run(report, tuple(starving_trial(f"b{block}-ladder", seed=block) for block in range(3)))


def eager_run(*, gpu: bool = True) -> Run:
    """An eager step of about 240 ms on a GPU that is hardly used; steps are an AR(1) series."""
    rng = np.random.default_rng(7)
    noise = np.zeros(300)
    for i in range(1, noise.size):
        noise[i] = 0.6 * noise[i - 1] + rng.standard_normal()
    made = make_segment(0.0004 + 0.0001 * rng.random(300), 0.24 * np.exp(0.04 * noise), busy=1.04, warmup=2)
    times = 5_000_000_000 + np.arange(0, 70_000_000_000, 200_000_000)
    device = GpuReadings(
        index=0,
        name="NVIDIA RTX 4090",
        uuid="GPU-0",
        utilization_t_ns=tuple(int(t) for t in times),
        utilization=tuple(float(u) for u in rng.uniform(0.02, 0.4, times.size)),
    )
    readings = Readings(gpus=(device,)) if gpu else Readings(unmeasured={"gpus": "no NVIDIA driver"})
    report = Report(
        kind="diagnose",
        command="xttsbench diagnose my_project.train:make",
        created_utc="2026-01-02T03:04:05Z",
        target={"name": "my_project.train:make"},
        environment={"cpus": 2},
        verdict=Verdict(
            bottleneck="dispatch",
            summary="The step runs op by op from Python: 1,912 ops a step take 203 ms of 242 ms to launch.",
            confidence=1.0,
            step_time_s=estimate(0.242, 0.01),
            step_time_median_s=estimate(0.241, 0.01),
            step_time_p95_s=estimate(0.264, 0.02),
            input_wait_fraction=estimate(0.0017),
            accelerator_utilization=estimate(0.21) if gpu else None,
            attribution_s=Attribution(
                input=0.0004,
                dispatch=0.203,
                compute=0.041,
                compile=0.0,
                host=0.0,
                transfer=0.0,
                contention=0.0,
                residual=-0.0024,
            ),
        ),
        findings=(
            Finding(
                rule="eager-step",
                severity="critical",
                limiting=True,
                title="The training step is not compiled",
                location=Location(file="my_project/train.py", line=88),
                evidence={"eager_ops_per_step": 1912, "launch_s": 0.203},
                remedy="Decorate the step with @tf.function.",
                verified_speedup=estimate(5.61),
                same_data="not_proved",
            ),
        ),
        oscillation=Oscillation(std_over_mean=0.05, p99_over_p50=1.11, effective_steps=76.0, cv=0.049),
        unmeasured={
            "oscillation.period_steps": "no period stands out from red noise at 1 % in 298 steps",
            **({} if gpu else {"verdict.accelerator_utilization": "no accelerator on this machine"}),
        },
        accelerator={"kind": "real", "label": "NVIDIA RTX 4090"} if gpu else {},
        warm_up=WarmUp(first_step_s=1.2, steps_cut=2, steady_state=True, steps_measured=298, certified=True),
    )
    return Run(report, (make_trial("b0-ladder", made, readings=readings, devices=Devices(cpus=2)),))


def empty_run() -> Run:
    """A target that raised before the first step."""
    reason = "the target raised ValueError at step 0"
    found = verdict("Nothing was measured: the target raised ValueError at step 0.")
    report = Report(
        kind="diagnose",
        command="xttsbench diagnose broken.py:make",
        created_utc="2026-01-02T03:04:05Z",
        target={"name": "broken.py:make"},
        environment={},
        verdict=found,
        unmeasured={f"verdict.{name}": reason for name, value in found if value is None},
    )
    error = TrialError(type="ValueError", message="bad batch")
    return Run(report, (make_trial("b0-ladder", status="raised", error=error),))


def hostile_run() -> Run:
    """The starving run with markup, escapes and control characters wherever text comes from outside."""
    report, trials = starving_run()
    finding = changed(
        report.findings[0],
        title=HOSTILE,
        location=Location(file=HOSTILE, line=3, op=HOSTILE),
        evidence={HOSTILE: HOSTILE},
        remedy=HOSTILE,
        patch=f"``````\n{HOSTILE}",
    )
    spoilt = changed(
        report,
        command=HOSTILE,
        target={"name": HOSTILE},
        environment={HOSTILE: {HOSTILE: [HOSTILE]}},
        verdict=changed(report.verdict, summary=HOSTILE),
        findings=(finding, *report.findings[1:]),
        unmeasured={HOSTILE: HOSTILE},
        accelerator={"kind": "real", "label": HOSTILE},
        trials=({"trial": HOSTILE, "cause": HOSTILE},),
        warnings=(HOSTILE,),
    )
    renamed = changed(trials[0], spec=changed(trials[0].spec, trial_id=HOSTILE))
    return Run(spoilt, (renamed, *trials[1:]))


EMULATED = "emulated accelerator, 10 ms a step"
REAL = "real device"
PROCESSOR = "processor: share of the wall time inside the step"


def make_arm_trial(
    arm: str, block: int, made: Segment, *, group: str = "loaders", emulated_ms: float = 0.0
) -> TrialRecord:
    """One process of one arm."""
    spec = TrialSpec(
        trial_id=f"{block}-{arm}",
        kind="arm",
        target="data.py:make",
        block=block,
        arm=arm,
        group=group,
        emulated_ms=(emulated_ms,) if emulated_ms else (),
    )
    return TrialRecord(spec=spec, status="ok", started_utc="2026-01-02T03:04:05Z", duration_s=9.0, segments=(made,))


def make_arm(name: str, step_s: float, **fields: Any) -> Variant:
    """An arm of batches of 8 with 600 valid frames each, on the emulated accelerator."""
    measured = {
        "role": "candidate",
        "config": {"loader": name},
        "blocks": 8,
        "status": "ok",
        "group": "loaders",
        "accelerator": EMULATED,
        "step_time_s": estimate(step_s),
        "throughput_per_s": estimate(8 / step_s),
        "valid_frames_per_s": estimate(4800 / step_s),
        "padding_efficiency": 0.913,
        "utilization": estimate(0.01 / step_s, 0.01),
        "utilization_of": "emulated accelerator",
        "input_wait_fraction": estimate(1 - 0.01 / step_s, 0.01),
        "cv": 0.034,
        "std_over_mean": 0.12,
        "steps": 1920,
        "evidence": 3210.0,
    }
    return Variant(id=name, **(measured | fields))


def comparing_run() -> Run:
    """Three loaders on an emulated accelerator (starved every fourth step, or not), two modes on the device."""
    rng = np.random.default_rng(3)
    starved_s = np.tile([0.001, 0.001, 0.001, 0.197], 40)
    wait_s = {"numpy_wav": starved_s, "packed": np.full(200, 0.0004), "numpy_wav:again": starved_s}
    trials = [
        make_arm_trial(name, block, make_segment(wait, np.full(wait.size, 0.0101), emulated_s=0.01), emulated_ms=10.0)
        for block in range(2)
        for name, wait in wait_s.items()
    ]
    trials += [
        make_arm_trial(name, 0, make_segment(np.full(90, 0.001), step_s + 0.001 * rng.random(90)), group="modes")
        for name, step_s in (("eager", 0.3), ("xla", 0.02))
    ]
    on_device = {
        "group": "modes",
        "accelerator": REAL,
        "utilization_of": PROCESSOR,
        "utilization": estimate(0.97, 0.01),
    }
    refusal = "batch 0, mel: row 3 (clip 12), frame 5, band 7: -1.2 against -1.3"
    report = Report(
        kind="run",
        command="xttsbench run loaders",
        created_utc="2026-01-02T03:04:05Z",
        target={"name": "loaders"},
        environment={"cpus": 2},
        verdict=verdict("Arms were compared."),
        arms=(
            make_arm("numpy_wav", 0.0605, role="baseline", std_over_mean=1.37, evidence=None),
            make_arm("packed", 0.0106, effect=estimate(5.71), decision="faster"),
            make_arm("tf_wav", 0.0619, effect=estimate(0.977, 0.01), decision="slower"),
            Variant(
                id="tf_fast",
                role="candidate",
                blocks=0,
                status=f"refused: its data are not the baseline's: {refusal}",
                group="loaders",
                accelerator=EMULATED,
                decision="ended",
            ),
            Variant(
                id="ram",
                role="candidate",
                blocks=0,
                status="out_of_memory: the process held 7.4 GiB of 6.0 GiB",
                group="loaders",
                accelerator=EMULATED,
                decision="ended",
            ),
            make_arm(
                "numpy_wav:again", 0.0604, role="aa", effect=estimate(1.002, 0.011), std_over_mean=1.36, evidence=None
            ),
            make_arm("eager", 0.3, role="baseline", valid_frames_per_s=None, padding_efficiency=None, **on_device),
            make_arm(
                "xla",
                0.02,
                effect=estimate(15.0),
                decision="faster",
                valid_frames_per_s=None,
                padding_efficiency=None,
                **on_device,
            ),
        ),
        aa=AA(effect=estimate(1.002, 0.011), noisy=False, smallest_visible_effect=0.021),
        parity={
            "same": False,
            "tolerance": 1e-4,
            "batches": 8,
            "baseline": "numpy_wav",
            "arms": ["packed", "tf_wav", "tf_fast"],
            "difference": f"tf_fast: {refusal}",
            "differences": {"tf_fast": refusal},
            "failed": {"ram": "its data could not be read: out of memory"},
            "skipped": {},
        },
        comparison=(
            "Emulated accelerator, 10 ms a step: packed is 5.71x (5.54 to 5.88) as fast as numpy_wav.",
            "Real device: xla is 15.0x (14.6 to 15.4) as fast as eager.",
        ),
        unmeasured={
            "verdict.step_time_s": "configurations were compared",
            "verdict.attribution_s": "configurations were compared",
            **{f"arms.3.{name}": "refused, so not measured" for name in ("step_time_s", "effect", "cv", "utilization")},
            "arms.6.valid_frames_per_s": "the workload does not say where its frames are",
            "arms.7.valid_frames_per_s": "the workload does not say where its frames are",
        },
        trials=tuple({"id": record.spec.trial_id, "status": record.status} for record in trials),
    )
    return Run(report, tuple(trials))


def hostile_comparison() -> Run:
    """The compared arms with markup, escapes and control characters wherever text comes from outside."""
    report, trials = comparing_run()
    arms = tuple(
        changed(
            found,
            id=f"{found.id} {HOSTILE}",
            group=f"../{HOSTILE}",
            accelerator=f"{found.accelerator} {HOSTILE}",
            utilization_of=HOSTILE,
            config={HOSTILE: HOSTILE},
            status=found.status if found.status == "ok" else f"{found.status} {HOSTILE}",
        )
        for found in report.arms
    )
    parity = dict(report.parity or {}) | {"baseline": HOSTILE, "arms": [HOSTILE], "differences": {HOSTILE: HOSTILE}}
    renamed = tuple(
        changed(record, spec=changed(record.spec, arm=f"{record.spec.arm} {HOSTILE}", group=f"../{HOSTILE}"))
        for record in trials
    )
    return Run(changed(report, arms=arms, parity=parity, comparison=(HOSTILE, HOSTILE)), renamed)


starving = pytest.fixture(starving_run, scope="session")
eager = pytest.fixture(eager_run, scope="session")
empty = pytest.fixture(empty_run, scope="session")
hostile = pytest.fixture(hostile_run, scope="session")
comparing = pytest.fixture(comparing_run, scope="session")
hostile_arms = pytest.fixture(hostile_comparison, scope="session")


@pytest.fixture(scope="session")
def every_run(starving, eager, empty, hostile, comparing, hostile_arms) -> dict[str, Run]:
    return {
        "starving": starving,
        "eager": eager,
        "eager without a GPU": eager_run(gpu=False),
        "empty": empty,
        "hostile": hostile,
        "comparing": comparing,
        "hostile arms": hostile_arms,
    }
