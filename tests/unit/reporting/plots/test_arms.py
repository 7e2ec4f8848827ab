from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from tests.unit.reporting.conftest import changed, make_arm, make_arm_trial, make_segment
from xttsbench.records.readings import GpuReadings, Readings
from xttsbench.reporting import plots
from xttsbench.reporting.plots import figure_of, style
from xttsbench.reporting.scene import stage
from xttsbench.reporting.sections import figures

ARMS, TRACES = (f"{kind}-loaders-emulated-accelerator-10-ms-a-step" for kind in ("arms", "traces"))
MODES = "modes-real-device"


def drawn(name: str, report, trials) -> Figure:
    with style():
        return figure_of(name, stage(report, trials))


def words(figure: Figure) -> str:
    return " ".join(" ".join(text.get_text() for text in figure.findobj(Text)).split())


def title(figure: Figure) -> str:
    return " ".join(figure.get_suptitle().split())


def with_arms(run, *arms):
    return changed(run.report, arms=arms), run.trials


def test_a_comparison_has_two_plots_for_each_group_and_none_of_one_target(comparing) -> None:
    assert list(figures(comparing.report)) == [ARMS, TRACES, f"arms-{MODES}", f"traces-{MODES}"]
    assert figures(comparing.report)[ARMS].endswith("loaders: EMULATED accelerator, 10 ms a step")


def test_steps_of_arms_are_not_those_of_the_target(comparing, starving) -> None:
    scene = stage(starving.report, (*starving.trials, *comparing.trials))
    assert [series.label for series in scene.series] == ["b0-ladder", "b1-ladder", "b2-ladder"]


@pytest.mark.parametrize(
    ("label", "trials"),
    [("emulated accelerator, 10 ms a step", ["0-numpy_wav", "1-numpy_wav"]), ("real device", ["0-eager"])],
)
def test_what_is_drawn_of_one_target_is_the_baseline_that_the_verdict_is_about(comparing, label, trials) -> None:
    report = changed(comparing.report, accelerator={"label": label})
    assert [series.label for series in stage(report, comparing.trials).series] == trials


def test_with_a_verdict_the_plots_of_the_baseline_follow(comparing, starving) -> None:
    verdict = starving.report.verdict
    every = figures(changed(comparing.report, verdict=verdict))
    assert list(every)[4:] == ["timeline", "distribution", "autocorrelation", "periodogram"]
    assert every["timeline"] == "Steps, waits and utilization over time, of the baseline"
    verdict = changed(verdict, step_time_s=None)
    assert "timeline" not in figures(changed(comparing.report, verdict=verdict))


def test_bars_are_the_throughput_with_its_interval(comparing) -> None:
    figure = drawn(ARMS, *comparing)
    axes, beside = figure.axes
    bars = {
        round(patch.get_y() + patch.get_height() / 2): patch.get_width()
        for patch in axes.patches
        if isinstance(patch, Rectangle)
    }
    assert bars == pytest.approx({0: 132.2, 1: 754.7, 2: 129.2, 5: 132.5}, rel=1e-3)
    whiskers = axes.collections[1].get_segments()[0][:, 0]
    np.testing.assert_allclose(whiskers, [0.97 * 754.7, 1.03 * 754.7], rtol=1e-3)
    assert [text.get_text() for text in axes.get_yticklabels()] == [arm.id for arm in comparing.report.arms[:6]]
    shown = " ".join(text.get_text() for text in beside.texts)
    assert "utilization 16.5 % 94.3 %" in shown
    assert "5.71x" in shown
    assert axes.get_xscale() == "linear"


def test_the_title_names_the_winner_and_the_label_the_accelerator(comparing) -> None:
    for name in (ARMS, TRACES):
        assert "EMULATED accelerator, 10 ms a step" in words(drawn(name, *comparing))
    for name in (f"arms-{MODES}", f"traces-{MODES}"):
        text = words(drawn(name, *comparing))
        assert "THIS CPU" in text
        assert "EMULATED" not in text
    assert title(drawn(ARMS, *comparing)) == "loaders: packed gives 5.71x the throughput of numpy_wav"


def test_no_winner_is_named_that_was_not_decided(comparing) -> None:
    arms = [changed(arm, decision="undecided") if arm.decision == "faster" else arm for arm in comparing.report.arms]
    figure = drawn(ARMS, *with_arms(comparing, *arms))
    assert title(figure) == "loaders: no configuration is proven to be faster than the baseline"


def test_the_dead_are_in_the_plot_with_how_they_ended(comparing) -> None:
    text = words(drawn(ARMS, *comparing))
    assert "refused" in text
    assert "ended: out of memory" in text
    late = make_arm("late", 0.02, status="killed: signal 9", decision="ended")
    assert "400; ended: killed" in words(drawn(ARMS, *with_arms(comparing, comparing.report.arms[0], late)))


def test_the_starved_loader_oscillates_and_the_cured_one_is_flat(comparing) -> None:
    figure = drawn(TRACES, *comparing)
    above, below = figure.axes
    starved, cured = (line for line in above.lines if len(line.get_xdata()) > 2)
    share = np.asarray(starved.get_ydata())
    assert share.max() > 0.6  # three steps in a row without a wait
    assert share.min() < 0.01  # 0.2 s of waiting
    assert np.ptp(cured.get_ydata()) < 0.03
    assert np.mean(cured.get_ydata()) == pytest.approx(0.95, abs=0.02)
    assert above.get_ylim() == (0, 1.03)
    steps = [np.asarray(line.get_ydata()) for line in below.lines]
    assert [len(wall) for wall in steps] == [160, 200]
    assert steps[0].max() == pytest.approx(0.207, abs=0.001)
    assert title(figure) == "loaders, use of the EMULATED accelerator: numpy_wav 16.5 %, packed 94.3 %"
    legend = words(figure)
    assert "numpy_wav (baseline): 60.5 ms a step; 160 steps in 9.62 s" in legend
    assert "pass mark of MLPerf Storage, 90 %" in legend


def test_on_a_gpu_it_is_what_the_driver_sampled(comparing) -> None:
    times = tuple(range(5_000_000_000, 8_000_000_000, 50_000_000))
    gpu = GpuReadings(index=0, name="X", uuid="u", utilization_t_ns=times, utilization=(0.37,) * len(times))
    made = make_arm_trial("x", 0, make_segment([0.001] * 200, [0.0101] * 200))
    made = changed(made, readings=Readings(gpus=(gpu,)))
    arm = make_arm("x", 0.011, role="baseline", accelerator="real device", utilization_of="GPU (driver)")
    figure = drawn("traces-loaders-real-device", changed(comparing.report, arms=(arm,)), (made,))
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), 0.37)
    assert "GPU (driver)" in words(figure)
    without = changed(made, readings=Readings())
    report = changed(comparing.report, arms=(arm,))
    assert drawn("traces-loaders-real-device", report, (without,)).axes[0].lines[0].get_ydata().size == 0


def test_without_a_step_no_utilization_is_made_up(comparing) -> None:
    arms = [changed(arm, utilization=None, utilization_of="") for arm in comparing.report.arms]
    figure = drawn(TRACES, *with_arms(comparing, *arms))
    assert len(figure.axes) == 1
    assert "utilization was not measured" in words(figure)
    assert "packed: 10.6 ms a step" in words(figure)


def test_arms_without_steps_give_the_reason_in_words(comparing) -> None:
    assert "No configuration of the group has recorded steps." in words(drawn(TRACES, comparing.report, ()))


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_short_trials_give_a_plot(comparing, steps: int) -> None:
    made = make_segment([0.001] * steps, [0.0101] * steps, emulated_s=0.01)
    trials = [make_arm_trial(name, 0, made, emulated_ms=10.0) for name in ("numpy_wav", "packed")]
    with style():
        assert plots.save(drawn(TRACES, comparing.report, trials)).png.startswith(b"\x89PNG")
