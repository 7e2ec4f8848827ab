"""Files of a run, changed in their structure: each is read, or refused in one sentence, and never anything else."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit import test_corpus
from xttsbench.errors import XttsbenchError
from xttsbench.targets.spec import substituted
from xttsbench.workflows.runs import rebuild

CORPUS = test_corpus.inputs.CORPUS
KINDS = test_corpus.inputs.KINDS
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 2**64, 10**400, 0.0, -0.5, 1e308),
    *(float("nan"), float("inf")),
    *("", "1", "nan", "\0", "\x1b]0;x\x07", "ä" * 50, "../../x", "\ud800", "a" * 5000, "1" * 500, "9999-99-99"),
    *([], {}, [[]], [None], {"": None}, {"x": {"x": {}}}, [1, "a", None], "2026-01-02T03:04:05Z"),
)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in below:
        yield from places(one, (*place, key))


@st.composite
def changed(draw: st.DrawFn, whole: Any) -> Any:
    """A value with a few changes: keys dropped, doubled or renamed, values replaced, nested or spliced."""
    whole = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 3))):
        known = list(places(whole))
        place = known[draw(st.integers(0, len(known) - 1))]
        new = draw(st.sampled_from(["odd", "drop", "double", "rename", "nest", "splice"]))
        if not place:
            continue
        inside = whole
        for key in place[:-1]:
            inside = inside[key]
        key, old = place[-1], inside[place[-1]]
        if new == "odd":
            inside[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
        elif new == "drop":
            del inside[key]
        elif new == "nest":
            for _ in range(draw(st.sampled_from([1, 20, 60]))):
                old = [old]
            inside[key] = old
        elif new == "splice":
            other: Any = whole
            for one in known[draw(st.integers(0, len(known) - 1))]:
                other = other[one]
            inside[key] = copy.deepcopy(other)
        elif isinstance(inside, list):
            inside.insert(key, old)
        else:
            inside[f"{key}s" if new == "rename" else f" {key}"] = inside.pop(key) if new == "rename" else old
    return whole


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def as_lines(value: Any) -> bytes:
    return b"".join(as_json(one) + b"\n" for one in value) if isinstance(value, list) else as_json(value)


def as_yaml(value: Any) -> bytes:
    return yaml.safe_dump(value, sort_keys=False).encode("utf-8", "surrogatepass")


def lines(text: bytes) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


FILES: tuple[tuple[str, str, Callable[[bytes], Any], Callable[[Any], bytes]], ...] = (
    ("report", "seed-report-small", json.loads, as_json),
    ("report", "seed-plan", json.loads, as_json),
    ("report", "seed-environment", json.loads, as_json),
    ("report", "seed-summary", json.loads, as_json),
    ("report", "seed-manifest", json.loads, as_json),
    ("journal", "seed-trials", lines, as_lines),
    ("journal", "seed-trial", lines, as_lines),
    ("journal", "seed-history", lines, as_lines),
    ("yaml", "seed-best", yaml.safe_load, as_yaml),
    ("yaml", "seed-optimized", yaml.safe_load, as_yaml),
    ("yaml", "seed-prefetch", yaml.safe_load, as_yaml),
    ("yaml", "seed-tiny", yaml.safe_load, as_yaml),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("examples", [60, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "name", "load", "dump"), FILES, ids=[name for _, name, _, _ in FILES])
def test_a_file_whose_structure_was_changed_is_read_or_refused(kind, name, load, dump, examples) -> None:
    whole = load((CORPUS / kind / name).read_bytes())

    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def each(data: st.DataObject) -> None:
        value, kept = data.draw(changed(whole)), data.draw(st.sampled_from([1.0, 1.0, 1.0, 0.99, 0.7, 0.1]))
        text = dump(value)
        with tempfile.TemporaryDirectory() as folder:
            KINDS[kind](text[: round(len(text) * kept)], Path(folder))

    each()


SOURCE = '"""A target."""\n\nimport os\n\n\ndef make(n: int = 3):\n    return [os.getpid() for _ in range(n)]\n'


@given(st.integers(0, len(SOURCE)), st.sampled_from([b"", b"\0", b"\xff", b"# coding: nothing\n", b"(" * 200, b"\x0c"]))
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_patched_source_that_was_changed_is_read_or_refused(tmp_path: Path, at: int, put: bytes) -> None:
    original, patched = tmp_path / "data.py", tmp_path / "patched.py"
    original.write_text(SOURCE, encoding="utf-8")
    patched.write_bytes(SOURCE.encode()[:at] + put + SOURCE.encode()[at:])
    try:
        with substituted({str(original): str(patched)}):
            pass
    except XttsbenchError as error:
        assert str(error)  # noqa: PT017 - it may be read as well


def run_of(folder: Path, text: bytes) -> Path:
    for name, seed in (("plan.json", "seed-plan"), ("environment.json", "seed-environment")):
        (folder / name).write_bytes((CORPUS / "report" / seed).read_bytes())
    (folder / "trials.jsonl").write_bytes(text)
    return folder


def test_the_journal_of_the_corpus_makes_a_report(tmp_path: Path) -> None:
    assert rebuild(run_of(tmp_path, (CORPUS / "journal" / "seed-trial").read_bytes())).report.kind == "diagnose"
