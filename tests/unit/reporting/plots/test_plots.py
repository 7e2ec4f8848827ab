from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle, StepPatch
from matplotlib.text import Text

from tests.unit.reporting.conftest import changed, make_segment, make_trial
from xttsbench.records.readings import GpuReadings, Readings
from xttsbench.reporting import plots
from xttsbench.reporting.plots import style
from xttsbench.reporting.plots.target import DRAWERS
from xttsbench.reporting.scene import stage
from xttsbench.reporting.sections import CAPTIONS, TRAINING


def drawn(name: str, report, trials) -> Figure:
    with style():
        return DRAWERS[name](stage(report, trials))


def every_plot(run) -> list[plots.Plot]:
    return [plots.draw_one(name, stage(*run)) for name in CAPTIONS]


def words(figure: Figure) -> str:
    return " ".join(" ".join(text.get_text() for text in figure.findobj(Text)).split())


def title(figure: Figure) -> str:
    return " ".join(figure.get_suptitle().split())


def test_each_plot_has_a_caption_in_the_same_order() -> None:
    assert list(DRAWERS) == [*CAPTIONS, TRAINING]


@pytest.mark.parametrize("name", CAPTIONS)
@pytest.mark.parametrize(("steps", "noise"), [(1, 0.0), (2, 0.2), (3, 0.0), (5, 0.2), (25, 0.0)])
def test_short_and_constant_series_give_a_plot(name, steps, noise, empty) -> None:
    rng = np.random.default_rng(steps)
    wait, step = (0.01 * (1 + noise * rng.random(steps)) for _ in range(2))
    record = make_trial("t", make_segment(wait, step, warmup=min(steps, 3)))
    figure = drawn(name, empty.report, (record,))
    assert title(figure)
    with style():
        assert plots.save(figure).png.startswith(b"\x89PNG")


@pytest.mark.parametrize("name", CAPTIONS)
def test_without_steps_the_reason_is_in_the_plot(name, empty) -> None:
    assert "the target raised ValueError at step 0" in words(drawn(name, *empty))


def test_all_plots_survive_hostile_names(hostile) -> None:
    assert all(plot.svg for plot in every_plot(hostile))


def test_the_run_is_the_target_as_it_is_and_its_longest_process(starving) -> None:
    report, trials = starving
    long = make_trial("long", make_segment([0.001] * 900, [0.01] * 900))
    fix = changed(long, spec=changed(long.spec, kind="arm"))
    assert [series.label for series in stage(report, (*trials, fix)).series] == ["b0-ladder", "b1-ladder", "b2-ladder"]
    assert stage(report, (*trials, long)).main.label == "long"


def test_the_time_line_marks_every_stall_and_the_warm_up(starving) -> None:
    figure = drawn("timeline", *starving)
    top, middle, bottom = figure.axes
    steps, stalls = (line.get_ydata() for line in top.lines[:2])
    assert len(steps) == 400
    assert len(stalls) == 25
    assert min(stalls) > 0.2
    assert "25 of 397 steps are stalls" in title(figure)
    for axes in (top, middle, bottom):
        shades = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        assert [shade.get_x() for shade in shades] == [0]
    segments = middle.collections[0].get_segments()
    np.testing.assert_allclose(max(segment[1][1] for segment in segments[3:]), 0.27, atol=0.03)


def test_the_trace_is_labelled_for_what_it_is(starving, eager) -> None:
    assert "EMULATED accelerator" in words(drawn("timeline", *starving))
    on_gpu = words(drawn("timeline", *eager))
    assert "GPU, the driver's samples, 21.0 % on average: 0 NVIDIA RTX 4090" in on_gpu
    assert "EMULATED" not in on_gpu


def test_samples_outside_the_steps_are_not_shown_as_of_the_steps(eager) -> None:
    report, (record,) = eager
    late = GpuReadings(index=0, name="X", uuid="u", utilization_t_ns=(10**12,), utilization=(0.9,))
    figure = drawn("timeline", report, (changed(record, readings=Readings(gpus=(late,))),))
    assert "no accelerator: the process's use of 2 cores" in words(figure)
    np.testing.assert_allclose(figure.axes[2].lines[0].get_ydata(), 0.52, atol=0.08)


def test_the_distribution_overlays_processes_and_marks_the_reports_numbers(starving) -> None:
    figure = drawn("distribution", *starving)
    above = figure.axes[0]
    histograms = [patch for patch in above.patches if isinstance(patch, StepPatch)]
    assert len(histograms) == 3
    for histogram in histograms:
        assert histogram.get_data().values.sum() == pytest.approx(1)
    marks = [line.get_xdata()[0] for line in above.lines if len(line.get_xdata()) == 2]
    assert marks == pytest.approx([0.0342, 0.0181, 0.2672])
    assert figure.axes[1].get_xscale() == "log"
    assert "1.89 times the median" in title(figure)


def test_a_plot_that_shows_nothing_says_so(empty, starving) -> None:
    assert not any(plot.says for plot in every_plot(empty))
    assert plots.draw_one("autocorrelation", stage(*starving)).says


def test_the_periodogram_marks_the_period_above_the_line(starving) -> None:
    figure = drawn("periodogram", *starving)
    axes = figure.axes[0]
    power, _, threshold, mark = axes.lines[:4]
    assert mark.get_xdata()[0] == pytest.approx(1 / 16)
    nearest = int(np.argmin(np.abs(power.get_xdata() - 1 / 16)))
    assert power.get_ydata()[nearest] > threshold.get_ydata()[nearest]
    assert title(figure) == "Step time: repeats every 16 steps (547 ms), 97.0 % of the variance"
    assert "16 steps = 547 ms" in words(figure)
