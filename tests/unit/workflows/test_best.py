"""``best.yaml``: what is written is what is read, whatever else lies there is refused, and differences are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from xttsbench.errors import InvalidInputError
from xttsbench.records.base import Estimate
from xttsbench.records.report import Best, Fingerprint
from xttsbench.workflows import best as module
from xttsbench.workflows.best import (
    differences,
    differences_here,
    fingerprint_of,
    newest_best,
    read_best,
    write_best,
)
from xttsbench.workflows.recorded import code_identity

FOUND_ON = Fingerprint(environment="e", cpu="a CPU", cpus=2.0, tensorflow="2.21.0", code="c0de", data="da7a")


def best(**changes: object) -> Best:
    fields = {
        "run": "20260102T030405Z-prefetch",
        "workload": "xtts",
        "arm": "prefetch=4",
        "config": {"loader": "packed", "prefetch": 4, "lr": 1e-4, "note": "ä: #no"},
        "proven": True,
        "decided": True,
        "why": "prefetch=4 is 1.310x (1.200 to 1.420) as fast as prefetch=0 in 8 fresh blocks.",
        "effect": Estimate(estimate=1.31, low=1.2, high=1.42),
        "baseline": {"arm": "prefetch=0", "config": {"loader": "packed", "prefetch": 0}},
        "blocks": 8,
        "accelerator": {"kind": "emulated", "label": "emulated accelerator, 10 ms a step", "source": None},
        "steps_per_trial": 80,
        "tied_with": ("prefetch=8",),
        "fingerprint": FOUND_ON,
        "xttsbench_version": "0.1.0",
    }
    return Best.model_validate(fields | changes)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    path = write_best(tmp_path, best())
    assert path == tmp_path / "best.yaml"
    assert read_best(path) == read_best(tmp_path) == best()
    assert [file.name for file in tmp_path.iterdir()] == ["best.yaml"]


def test_the_file_has_the_promised_keys_and_plain_values(tmp_path: Path) -> None:
    write_best(tmp_path, best())
    content = yaml.safe_load((tmp_path / "best.yaml").read_text(encoding="utf-8"))
    promised = ["schema_version", "run", "workload", "config", "proven", "effect", "blocks", "accelerator"]
    promised += ["steps_per_trial", "tied_with", "fingerprint", "xttsbench_version", "baseline", "target"]
    assert set(promised) <= content.keys()
    assert content["schema_version"] == 2
    assert content["config"]["lr"] == 1e-4
    assert content["effect"] == {"estimate": 1.31, "low": 1.2, "high": 1.42}


def test_without_a_choice_an_older_file_does_not_stay(tmp_path: Path) -> None:
    write_best(tmp_path, best())
    assert write_best(tmp_path, None) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds NoneType, not the keys of best.yaml"),
        (b"- 1\n", "holds list, not the keys of best.yaml"),
        (b"run: x\n", "schema_version is None"),
        (b"schema_version: 9\n", "schema_version is 9"),
        (b"schema_version: 1\nrun: x\n", "best.yaml: arm"),
        (b"a: [1\n", "is not YAML"),
        (b"\xff\xfe\x00", "is not YAML"),
        (b"!!python/object/apply:os.system ['true']\n", "is not YAML"),
    ],
)
def test_what_is_no_best_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "best.yaml").write_bytes(content)
    with pytest.raises(InvalidInputError, match=said):
        read_best(tmp_path)


def test_a_missing_one_is_refused_with_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"name a best\.yaml, or the directory of a sweep"):
        read_best(tmp_path / "nowhere" / "best.yaml")


def test_the_newest_is_that_of_the_latest_run_that_has_one(tmp_path: Path) -> None:
    assert newest_best(tmp_path / "reports") is None
    for name in ("20260101T000000Z-a", "20260103T000000Z-b", "20260104T000000Z-c"):
        (tmp_path / name).mkdir()
    assert newest_best(tmp_path) is None
    write_best(tmp_path / "20260101T000000Z-a", best())
    write_best(tmp_path / "20260103T000000Z-b", best())
    assert newest_best(tmp_path) == tmp_path / "20260103T000000Z-b" / "best.yaml"


def test_the_same_place_has_no_differences() -> None:
    assert differences(best(), FOUND_ON) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cpu": "another"}, "processor: a CPU where it was found, another here"),
        ({"cpus": 64.0}, "processors that may be used: 2.0 where it was found, 64.0 here"),
        ({"gpus": ("H200", "H200")}, "GPUs: none where it was found, H200, H200 here"),
        ({"tensorflow": "2.20.0"}, "TensorFlow: 2.21.0 where it was found, 2.20.0 here"),
        ({"data": "f00d"}, "data set (hash): da7a where it was found, f00d here"),
    ],
)
def test_every_difference_is_named(change: dict[str, object], said: str) -> None:
    assert differences(best(), FOUND_ON.model_copy(update=change)) == [said]


def test_this_machine_and_code_are_what_it_is_held_against(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def make(): ...\n")
    machine = {"cpu": {"model": "a CPU", "machine_cpus": 2}, "gpus": [], "packages": {"tensorflow": "2.21.0"}}
    monkeypatch.setattr(module, "environment", lambda: machine)
    found_on = fingerprint_of(machine, code=code_identity("mine.py:make", bundled=False), data=None)
    mine = best(workload=None, target="mine.py:make", fingerprint=found_on)
    assert differences_here(mine) == []
    (tmp_path / "mine.py").write_text("def make(): return 1\n")
    machine["cpu"]["model"] = "another"  # type: ignore[index]
    processor, code = differences_here(mine)
    assert processor == "processor: a CPU where it was found, another here"
    assert code.startswith("code (hash): ")


def test_data_that_nobody_knows_are_no_difference() -> None:
    assert differences(best(), FOUND_ON.model_copy(update={"data": None, "code": None})) == []


def test_the_fingerprint_has_the_fewest_processors_that_any_limit_leaves() -> None:
    cpu = {"model": "m", "machine_cpus": 64, "affinity_cpus": 8, "quota_cpus": 2.5}
    machine = {"cpu": cpu, "gpus": [{"name": "H200"}], "packages": {"tensorflow": "2.21.0"}, "fingerprint": "abc"}
    found = fingerprint_of(machine, code="c", data=None)
    assert (found.cpus, found.gpus, found.environment, found.tensorflow) == (2.5, ("H200",), "abc", "2.21.0")
    assert fingerprint_of({}, code=None, data=None).environment == "unknown"
