"""The sentence on a training run that waits for data: what it names first, and when it is said again."""

from __future__ import annotations

from typing import Any

import pytest

from xttsbench.findings.starvation import Starvation, explain

PACKED: dict[str, Any] = {"loader": "packed", "prefetch": -1, "workers": -1, "threads": 0, "cache": False}


@pytest.mark.parametrize(
    ("config", "options", "rule", "remedy"),
    [
        ({}, {"overlap": False}, "no-prefetch", "--no-overlap"),
        ({"prefetch": 0}, {}, "no-prefetch", "prefetch to -1"),
        ({"prefetch": 0, "device_prefetch": 2}, {}, "input-bound", "diagnose"),
        ({"loader": "numpy_wav"}, {}, "python-function", "packed"),
        ({"loader": "numpy_cache"}, {}, "python-function", "--input-workers"),
        ({"loader": "numpy_wav"}, {"input_workers": 2}, "cacheable", "precompute"),
        ({"loader": "tf_wav"}, {}, "cacheable", "precompute"),
        ({"loader": "tf_wav", "cache": True}, {}, "input-bound", "diagnose"),
        ({"workers": 0}, {}, "sequential-map", "workers to -1"),
        ({"loader": "tf_cache"}, {}, "per-element-overhead", "packed"),
        ({}, {}, "input-bound", "diagnose"),
    ],
)
def test_the_first_thing_to_change_is_named(
    config: dict[str, Any], options: dict[str, Any], rule: str, remedy: str
) -> None:
    found = explain(PACKED | config, **{"overlap": True, "input_workers": 0, "share": 0.4} | options)
    assert found.rule == rule
    assert remedy in found.remedy
    assert found.limiting
    assert found.title.startswith("40% of the time is waiting for data")


def test_little_waiting_limits_nothing() -> None:
    assert not explain(PACKED, overlap=True, input_workers=0, share=0.05).limiting


def test_it_is_said_at_once_again_after_two_minutes_and_when_it_is_over() -> None:
    state, said = Starvation(), []
    for now_s, share in ((0, 0.05), (10, 0.3), (20, 0.3), (100, 0.4), (140, 0.4), (150, 0.02), (160, 0.02)):
        finding = explain(PACKED, overlap=True, input_workers=0, share=share)
        state, sentence = state.after(finding, share, now_s)
        said.append(sentence and sentence.split()[1])
    assert said == [None, "starves:", None, None, "starves:", "waits", None]
