"""The page of the reference figures says what the files beside it hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_FOLDER = Path(__file__).parents[2] / "reports" / "reference"
_PAGE = (_FOLDER / "README.md").read_text(encoding="utf-8")


def _file(name: str) -> Any:
    return json.loads((_FOLDER / "benchmarks" / f"{name}.json").read_text(encoding="utf-8"))


def _row(name: str) -> str:
    (found,) = [line for line in _PAGE.splitlines() if line.startswith(f"| `{name}`")]
    return found


def _wide(value: dict[str, float], digits: int) -> str:
    return f"{value['estimate']:.{digits}f} ({value['low']:.{digits}f} to {value['high']:.{digits}f})"


def _startup() -> Iterator[str]:
    value = _file("startup")["value"]
    yield f"{value['wall_ratio']:.2f} times in wall time, {value['user_cpu_ratio']:.2f} in user"


def _overhead() -> Iterator[str]:
    value = _file("overhead")["value"]
    steps, pauses = value["us_per_step"].values(), value["pause_us_per_step"].values()
    one, ten, fifty, script, in_graph = (f"{us:.0f} µs" for us in steps)
    yield from (f"{one} for a step of one", f"{ten} for 10 calls", f"{fifty} for 50")
    yield f"{in_graph} with its requests inside a graph, **{script}**"
    yield "{:.0f}, {:.0f} and {:.0f} µs of that".format(*pauses)


def _parent_memory() -> Iterator[str]:
    found = _file("parent_memory")
    yield f"{found['value']['peak_mb_while_trials_run']:.0f} MB; {found['peak_mb_with_the_report']:.0f} MB"


def _monitor() -> Iterator[str]:
    found = _file("monitor")
    lines, screen, lines_gpus, screen_gpus = (f"{case['cpu_share']:.2%}" for case in found["cases"].values())
    yield f"{lines} as lines and {screen} on a full screen".replace("%", " %")
    yield f"{lines_gpus} and **{screen_gpus}**".replace("%", " %")
    hour, half = found["hour"]["rss_kib"], found["half an hour on a screen"]["rss_kib_each_minute"]
    yield f"{hour['after 1.5 minutes'] * 1.024e-3:.1f} MB resident memory"
    yield f"{hour['at the end'] * 1.024e-3:.1f} MB at the end"
    yield f"{half[1] * 1.024e-3:.1f} MB after two minutes, {half[-1] * 1.024e-3:.1f} MB at the end"


def _verdict() -> Iterator[str]:
    value = _file("verdict")["value"]
    yield f"{value['right']} of {value['of']}; at most {value['seconds_max']:.0f} s"
    yield f"{value['residual_share_max']:.2%}".replace("%", " %")


def _loading() -> Iterator[str]:
    found = _file("loading")
    for figure in ("packed / numpy_cache", "packed / best peer", "tf_cache / numpy_cache"):
        yield _wide(found["figures"][figure]["value"], 1)
    for figure in ("packed / readinto (one buffer)", "tf_wav / numpy_wav"):
        yield f"{found['figures'][figure]['value']['estimate']:.2f} ("
    eager, graph, xla = found["step"]["step_ms_median"].values()
    yield f"{eager:.0f} ms eager, {graph:.0f} as a graph, {xla:.0f} by XLA"
    yield f"The index takes {found['index']['peak_mb']:.0f} MB"


def _diagnosis(name: str) -> Iterator[str]:
    value = _file(name)["value"]
    yield "{} of {}".format(*value["bottleneck_right"])
    yield "round trip {} of {}".format(*value["round_trip"])
    yield f"{value['seconds_max']:.0f} s; {value['residual_share_max']:.1%}".replace("%", " %")


def _watch() -> Iterator[str]:
    found = _file("watch")
    yield f"{found['agreement']['agree']}, losses equal in {found['agreement']['losses_equal']}"
    for one in found["cost"]["value"].values():
        low, high = one["quartiles"]
        yield f"{one['us_per_step']:.0f} µs"
        yield f"{abs(round(low))} and {high:.0f}"
    for memory in found["memory"]:
        yield f"{memory['value'][0]['loop_mb']} MB at"
        yield f"{memory['seconds']:.0f} s"


def _noise() -> Iterator[str]:
    value = _file("noise")["value"].values()
    right, undecided, wrong = (sum(one[key] for one in value) for key in ("right", "undecided", "wrong"))
    assert (undecided, wrong) == (2, 0)
    yield f"of {right + undecided + wrong} diagnoses {right} are right, none is wrong and two are undecided"


def _others() -> Iterator[str]:
    rows = _file("others")["rows"]
    ratios = [row["ratio"]["estimate"] for row in rows if row.get("ratio")]
    right = sum(row["outcome"].startswith("right") for row in rows)
    ends = f"{min(ratios):.2f} to {max(ratios):.1f} times"
    yield f"of {len(rows)} pipelines {right} are right: {len(ratios)} become {ends}"


def _trainer() -> Iterator[str]:
    figures = _file("trainer")["figures"]
    yield _wide(figures["tiny: trainer / bare loop, graph"]["value"], 3)
    yield _wide(figures["tiny: trainer graph / bare loop, eager"]["value"], 1)


@pytest.mark.parametrize(
    ("row", "figures"),
    [
        ("startup", _startup()),
        ("overhead", _overhead()),
        ("parent_memory", _parent_memory()),
        ("monitor", _monitor()),
        ("verdict", _verdict()),
        ("loading", _loading()),
        ("diagnosis", _diagnosis("diagnosis")),
        ("diagnosis-quiet", _diagnosis("diagnosis-quiet")),
        ("watch", _watch()),
        ("noise", _noise()),
        ("others", _others()),
        ("trainer", _trainer()),
    ],
)
def test_the_figures_of_a_row_are_those_of_its_file(row: str, figures: Iterator[str]) -> None:
    text = _row(row)
    assert [figure for figure in figures if figure not in text] == []


def test_every_row_names_a_file_or_says_that_it_was_not_kept() -> None:
    kept = {path.stem for path in (_FOLDER / "benchmarks").iterdir()}
    rows = [line for line in _PAGE.splitlines() if line.startswith("| ") and not line.startswith("| benchmark")]
    assert len(rows) >= 20
    without = [row for row in rows if row.split("`")[1] not in kept and "not kept" not in row]
    assert [row[:60] for row in without] == []


def test_the_figures_of_other_pages_are_those_of_the_files() -> None:
    docs = _FOLDER.parents[1] / "docs"
    watch, monitor = (" ".join((docs / f"{one}.md").read_text("utf-8").split()) for one in ("watch", "monitor"))
    cost = _file("watch")["cost"]["value"]
    for loop, said in (("from Python", "some {} µs longer by the clock"), ("in a graph", "some {} µs")):
        us = cost[f"50 ms, request {loop}"]["us_per_step"]
        assert said.format(f"{round(us, -1):.0f}") in watch
    lines, screen, *_ = (f"{case['cpu_share']:.1%}".replace("%", " %") for case in _file("monitor")["cases"].values())
    assert f"{lines} of one processor as lines and {screen} on a full screen" in monitor
