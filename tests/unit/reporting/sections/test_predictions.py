"""The table of predictions: what is there, what is not, and what was measured beside it."""

from __future__ import annotations

from types import SimpleNamespace

from xttsbench.records.base import Estimate
from xttsbench.records.pipeline import Prediction
from xttsbench.reporting.predictions import predictions_table


def table(*predictions):
    return predictions_table(SimpleNamespace(predictions=predictions))


def test_without_predictions_there_are_no_rows():
    assert table().rows == ()


def test_a_prediction_stands_beside_its_measurement():
    found = table(
        Prediction(
            name="parallel-map",
            batches_per_s=25.0,
            speedup=2.0,
            limited_by="thread pool",
            measured_per_s=Estimate(estimate=24.0, low=23.0, high=25.0),
        )
    )
    assert found.title == "What the model predicts"
    assert found.rows == (("parallel-map", "25.0", "2.00x", "thread pool", "24.0 /s (23.0 to 25.0)", ""),)
    assert len(found.header) == len(found.rows[0])


def test_what_is_not_predicted_says_why():
    ((name, rate, speedup, limited_by, measured, remark),) = table(
        Prediction(name="any-order", batches_per_s=None, why_not="means do not tell")
    ).rows
    assert (name, rate, speedup, limited_by, measured) == ("any-order", "not predicted", "", "", "not measured")
    assert remark == "means do not tell"
