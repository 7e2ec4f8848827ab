"""Every plot of a page has its data as a table, with the numbers that are drawn."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from tests.unit.reporting.conftest import (
    Run,
    changed,
    eager_run,
    make_segment,
    make_trial,
    sections,
    starving_run,
)
from xttsbench.records.trial import Segment
from xttsbench.reporting.document import Figure, Table
from xttsbench.reporting.page import page_document, render_page
from xttsbench.reporting.plot_tables import table_of
from xttsbench.reporting.scene import Scene, StepSeries, extremes, stage
from xttsbench.reporting.time_line import MOST_STRETCHES, TimeLine, time_line


def test_columns_become_seconds_from_the_first_step() -> None:
    columns = {
        "start_ns": (1_000, 2_000_001_000, 5_000_001_000),
        "wall_ns": (2_000_000_000, 3_000_000_000, 1_000_000_000),
        "wait_ns": (500_000_000, 0, 250_000_000),
        "step_ns": (1_500_000_000, 3_000_000_000, 750_000_000),
        "emulated_ns": (0, 1_000_000_000, 1_000_000_000),
        "cpu_ns": (10, 20, 30),
    }
    series = StepSeries(Segment(name="as_is", columns=columns, warmup_steps=1))
    assert series.zero_ns == 1_000
    np.testing.assert_allclose(series.end_s, [2, 5, 6])
    np.testing.assert_allclose(series.wait_s, [0.5, 0, 0.25])
    np.testing.assert_allclose(series.emulated_s, [0, 1, 1])
    assert series.emulated
    assert series.steady_from == 1
    np.testing.assert_allclose(series.steady_wall_s, [3, 1])


def test_the_steady_state_starts_after_warm_up_and_what_the_analysis_cuts() -> None:
    wall = (900, 900, *(300,) * 20, *(100, 101, 99, 100) * 25)
    columns = {"start_ns": tuple(np.cumsum((0, *wall[:-1])).tolist()), "wall_ns": wall}
    series = StepSeries(Segment(name="as_is", columns=columns, warmup_steps=2))
    assert series.steady_from == 22


def drawn(run: Run) -> TimeLine:
    found = time_line(stage(*run))
    assert found is not None
    return found


def embedded(page: str) -> dict[str, list[float]]:
    (text,) = re.findall(r'<script type="application/json" id="timeline-data">(.*?)</script>', page)
    return dict(json.loads(text))


def with_steps(made: Segment) -> Run:
    return Run(starving_run().report, (make_trial("b0-ladder", made),))


def many(steps: int) -> Run:
    rng = np.random.default_rng(3)
    wait = 0.001 + 0.002 * rng.random(steps)
    wait[steps // 2] = 0.5
    return with_steps(make_segment(wait, np.full(steps, 0.01)))


def test_every_step_and_its_parts_are_in_the_page(starving) -> None:
    found = drawn(starving)
    data = embedded(render_page(page_document(starving.report, stage(*starving)), {}))
    assert found.parts == ("input", "host")
    assert data["n"] == list(range(1, 401))
    wall = np.diff([0.0, *data["t"]])
    np.testing.assert_allclose(wall, data["wall"], rtol=1e-3, atol=2e-6)
    np.testing.assert_allclose(np.cumsum(data["input"]), data["waited"], rtol=1e-3)
    np.testing.assert_allclose(data["host"], 40e-6, rtol=1e-3)


def test_warm_up_ends_where_its_last_step_does() -> None:
    made = make_segment([0.001] * 40, [0.01] * 40)
    data = drawn(with_steps(changed(made, warmup_steps=3))).data
    times = data["t"]
    assert isinstance(times, list)
    assert data["warm"] == pytest.approx(times[2], abs=2e-6)
    assert drawn(with_steps(changed(made, warmup_steps=0))).data["warm"] == 0.0


def test_steps_that_compile_are_marked_and_charged() -> None:
    made = make_segment([0.001] * 40, [*[0.01] * 20, 0.31, *[0.01] * 19])
    columns = dict(made.columns)
    columns["traces"] = tuple(int(index == 20) for index in range(40))
    columns["trace_ns"] = tuple(200_000_000 * int(index == 20) for index in range(40))
    found = drawn(with_steps(changed(made, columns=columns)))
    assert found.data["compiled"] == [21]
    spent = found.data["compile"]
    assert isinstance(spent, list)
    assert spent[20] == 0.3
    assert sum(spent) == 0.3


def test_of_many_steps_the_extremes_are_kept_and_the_sums_stay_exact() -> None:
    run = many(100_000)
    wall = np.asarray(run.trials[0].segments[0].columns["wall_ns"]) / 1e9
    kept = extremes(wall, MOST_STRETCHES)
    assert kept.size <= 2 * MOST_STRETCHES + 2
    assert {0, 99_999, int(wall.argmax()), int(wall.argmin())} <= set(kept.tolist())
    data = drawn(run).data
    waited, times = data["waited"], data["t"]
    assert isinstance(waited, list)
    assert isinstance(times, list)
    assert abs(waited[-1] - sum(run.trials[0].segments[0].columns["wait_ns"]) / 1e9) < 1e-5
    assert abs(times[-1] - wall.sum()) < 1e-5
    page = render_page(page_document(run.report, stage(*run)), {})
    assert len(page.encode()) < 2_000_000
    assert "drawn are the fastest and the slowest of every 25" in page


def test_the_driver_s_samples_of_a_gpu_come_before_the_processor() -> None:
    found = drawn(eager_run())
    assert found.data["use_of"] == "GPU in use, as the driver samples it"
    assert drawn(eager_run(gpu=False)).data["use_of"] != found.data["use_of"]


def test_without_steps_there_is_no_time_line(empty) -> None:
    assert time_line(stage(*empty)) is None
    assert time_line(None) is None
    assert "uPlot" not in render_page(page_document(empty.report, stage(*empty)), {})


def test_a_name_cannot_end_the_data(hostile) -> None:
    found = stage(*hostile)
    assert found.main is not None
    found.main.label = "</script><script>alert(1)</script>"
    page = render_page(page_document(hostile.report, found), {})
    assert "<script>alert" not in page
    assert embedded(page)["n"][0] == 1


def table(name: str, scene: Scene) -> Table:
    found = table_of(name, scene)
    assert found is not None
    return found


def test_every_plot_stands_by_a_table(every_run: dict[str, Run]) -> None:
    seen = 0
    for name, run in every_run.items():
        for part in sections(page_document(run.report, stage(*run)).blocks):
            for place, block in enumerate(part.blocks):
                if isinstance(block, Figure) and stage(*run).main is not None:
                    seen += 1
                    beside = any(isinstance(one, Table) for one in part.blocks[:place])
                    assert block.table is not None or beside or block.name.startswith(("arms-", "traces-")), name
    assert seen > 5


@pytest.mark.parametrize("name", ["autocorrelation", "periodogram"])
def test_without_steps_there_is_no_table(empty: Run, starving: Run, name: str) -> None:
    assert table_of(name, stage(*empty)) is None
    assert table_of("distribution", stage(*empty)) is None
    assert np.isfinite(len(table(name, stage(*starving)).rows))
