"""Every plot of a page has its data as a table, with the numbers that are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.reporting.conftest import Run, sections, words
from xttsbench.reporting.document import Figure, Table
from xttsbench.reporting.groups import figures_of, groups
from xttsbench.reporting.page.document import page_document
from xttsbench.reporting.page.timeline import table_of
from xttsbench.reporting.scene import Scene, stage


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


def test_quantiles_of_each_process(starving: Run) -> None:
    found = table("distribution", stage(*starving))
    assert [column.name for column in found.columns][:3] == ["process", "steps", "fastest"]
    assert [row.cells[0].value for row in found.rows] == ["b0-ladder", "b1-ladder", "b2-ladder"]
    assert found.rows[0].cells[1].value == "397"


def test_the_period_is_seen_in_both_tables(starving: Run) -> None:
    scene = stage(*starving)
    by_lag = {row[0]: row for row in words(table("autocorrelation", scene))}
    assert by_lag["0"][1] == "1.000"
    assert float(by_lag["16"][1]) > 0.5
    assert by_lag["16"][2] == "yes"
    strongest = words(table("periodogram", scene))
    assert any(abs(16 / float(row[0]) - round(16 / float(row[0]))) < 0.1 and row[3] == "yes" for row in strongest)


def test_configurations_over_time(comparing: Run) -> None:
    scene = stage(*comparing)
    named = [(group, list(figures_of(group))[1]) for group in groups(comparing.report)]
    found = [(group, made) for group, name in named if (made := table_of(name, scene)) is not None]
    assert found
    for group, made in found:
        heads = [column.name for column in made.columns]
        assert heads[0] == "since the first step"
        assert any(
            head.endswith(": mean step") and head.split(":")[0] in {arm.id for arm in group.arms} for head in heads
        )
        assert len(made.rows) == 12
        assert any("s" in cell for row in words(made) for cell in row[1:])


@pytest.mark.parametrize("name", ["autocorrelation", "periodogram"])
def test_without_steps_there_is_no_table(empty: Run, starving: Run, name: str) -> None:
    assert table_of(name, stage(*empty)) is None
    assert table_of("distribution", stage(*empty)) is None
    assert np.isfinite(len(table(name, stage(*starving)).rows))
