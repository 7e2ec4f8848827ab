"""Block length and intervals on series whose truth is known."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import signal

from xttsbench.analysis import bootstrap
from xttsbench.analysis.bootstrap import interval, politis_white_length, stationary_indices

FloatArray = npt.NDArray[np.float64]


def ar1(phi: float, n: int, rng: np.random.Generator) -> FloatArray:
    noise: FloatArray = signal.lfilter([1.0], [1.0, -phi], rng.normal(size=n + 300))[300:]
    return noise


def mean(resamples: FloatArray) -> FloatArray:
    values: FloatArray = resamples.mean(axis=1)
    return values


def test_the_block_length_grows_with_the_autocorrelation() -> None:
    rng = np.random.default_rng(1)
    lengths = [np.median([politis_white_length(ar1(phi, 400, rng)) for _ in range(40)]) for phi in (0, 0.3, 0.6, 0.9)]
    assert lengths[0] < 2
    assert all(later > 1.5 * earlier for earlier, later in itertools.pairwise(lengths))


def test_the_block_length_is_that_of_the_theory() -> None:
    # AR(1), as shares of the variance: G = sum |k| phi^|k|, g(0) = sum phi^|k|, D = 2 g(0)^2, b = (2 G^2 / D n)^(1/3).
    phi, n = 0.6, 20_000
    lag_sum = 2 * phi / (1 - phi) ** 2
    density = (1 + phi) / (1 - phi)
    expected = (lag_sum**2 / density**2 * n) ** (1 / 3)
    rng = np.random.default_rng(2)
    found = np.mean([politis_white_length(ar1(phi, n, rng)) for _ in range(20)])
    assert found == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 30])
def test_a_constant_or_tiny_series_has_blocks_of_one(n: int) -> None:
    assert politis_white_length(np.full(n, 0.1)) == 1


def test_blocks_have_the_mean_length_and_run_on_and_around() -> None:
    n = 50
    indices = stationary_indices(n, 8.0, 4000, np.random.default_rng(3))
    assert indices.shape == (4000, n)
    assert set(np.unique(indices)) == set(range(n))
    runs_on = (indices[:, 1:] - indices[:, :-1]) % n == 1
    # A new block follows on by chance once in n.
    assert runs_on.mean() == pytest.approx(7 / 8 + 1 / 8 / n, abs=0.005)
    assert np.bincount(indices.ravel(), minlength=n) / indices.size == pytest.approx(1 / n, rel=0.1)


def test_the_interval_covers_on_autocorrelated_steps_where_an_ordinary_bootstrap_does_not() -> None:
    rng = np.random.default_rng(4)
    covered, ordinary = 0, 0
    for _ in range(200):
        series = ar1(0.6, 400, rng)
        found = interval(series, mean, resamples=300, rng=rng)
        covered += found.low <= 0 <= found.high
        low, high = np.quantile(series[rng.integers(400, size=(300, 400))].mean(axis=1), [0.025, 0.975])
        ordinary += low <= 0 <= high
    assert covered >= 176
    assert ordinary <= 150


@pytest.mark.parametrize(
    ("statistic", "truth"),
    [(lambda rows: np.median(rows, axis=1), 0.0), (lambda rows: np.quantile(rows, 0.95, axis=1), 1.6449)],
)
def test_quantiles_are_covered_too(statistic: Callable[[FloatArray], FloatArray], truth: float) -> None:
    rng = np.random.default_rng(5)
    found = [interval(rng.normal(size=300), statistic, resamples=300, rng=rng) for _ in range(100)]
    assert sum(one.low <= truth <= one.high for one in found) >= 86


def test_columns_are_resampled_together() -> None:
    rng = np.random.default_rng(6)
    wall_s = rng.lognormal(0, 0.5, 200)
    columns = np.column_stack([0.25 * wall_s, wall_s])
    found = interval(columns, lambda rows: rows[..., 0].sum(axis=1) / rows[..., 1].sum(axis=1), rng=rng)
    assert (found.low, found.estimate, found.high) == pytest.approx((0.25, 0.25, 0.25))


def test_the_resamples_are_all_made_however_long_the_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "_CHUNK", 700)
    seen: list[int] = []

    def statistic(rows: FloatArray) -> FloatArray:
        seen.append(len(rows))
        return mean(rows)

    interval(np.arange(100.0), statistic, resamples=23, rng=np.random.default_rng(7))
    assert seen == [1, 7, 7, 7, 2]


@pytest.mark.parametrize("values", [[3.0], [3.0, 5.0], [2.0] * 50])
def test_what_shows_no_spread_has_no_width(values: list[float]) -> None:
    found = interval(np.array(values), mean, rng=np.random.default_rng(8))
    assert found.low == found.estimate == found.high == pytest.approx(np.mean(values))


@pytest.mark.parametrize("values", [[], [1.0, np.nan], [1.0, np.inf, 2.0]])
def test_nothing_and_not_a_number_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="at least one step and finite numbers"):
        interval(np.array(values), mean, rng=np.random.default_rng(9))


def test_the_estimate_lies_in_its_interval_and_the_level_widens_it() -> None:
    series = np.random.default_rng(10).lognormal(0, 1, 30)
    found = [
        interval(series, lambda rows: rows.max(axis=1), rng=np.random.default_rng(11), level=level)
        for level in (0.5, 0.99)
    ]
    assert all(one.low <= one.estimate <= one.high for one in found)
    assert found[1].low <= found[0].low


def test_what_the_parent_imports_leaves_scipy_out() -> None:
    code = (
        "import sys, xttsbench.analysis.steady_state, xttsbench.analysis.bootstrap;"
        "sys.exit(any(name.partition('.')[0] in ('scipy', 'pandas', 'tensorflow') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
