"""The bundled workload as a target: its arguments, those of the configurations beside it, and what is made for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import run_plan
from xttsbench.errors import InvalidInputError, UsageError, XttsbenchError
from xttsbench.records.plan import Accelerator, RunPlan
from xttsbench.records.report import Best, Fingerprint
from xttsbench.workflows import bundled as train_job
from xttsbench.workflows import saved
from xttsbench.workflows.bundled import (
    TrainRequest,
    bundled_job,
    prepare_training,
    refuse_another,
    refuse_other_data,
)
from xttsbench.workflows.saved import write_best


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """The arguments for which data would be made."""
    found: list[Mapping[str, Any]] = []

    def prepare(configurations: Iterable[Mapping[str, Any]], _progress: object = None) -> None:
        found.extend(configurations)

    monkeypatch.setattr("xttsbench.workflows.bundled.prepare", prepare)
    return found


def test_behind_an_emulated_accelerator_the_workload_has_no_step_of_its_own(read: list[Mapping[str, Any]]) -> None:
    emulated, real = bundled_job({}, None, "emulated:10"), bundled_job({}, None, "real")
    assert emulated.kwargs["with_step"] is False
    assert real.kwargs.get("with_step") is not False
    assert emulated.comparison is not None
    assert [one.step_times_ms for one in emulated.comparison.accelerators] == [(10.0,)]
    assert read[0] == emulated.kwargs


def test_a_loader_changes_the_target_and_leaves_what_is_compared(read: list[Mapping[str, Any]]) -> None:
    plain, packed = bundled_job({}, None, "real"), bundled_job({"loader": "packed"}, None, "real")
    assert packed.kwargs["loader"] == "packed" != plain.kwargs["loader"]
    assert packed.comparison == plain.comparison
    assert len(read) == 2 * (1 + len(plain.comparison.arms if plain.comparison else ()))


def test_nothing_is_made_for_configurations_that_are_not_compared(read: list[Mapping[str, Any]]) -> None:
    job = bundled_job({"loader": "numpy_wav"}, None, "emulated:10", compared=False)
    assert job.comparison is None
    assert read == [job.kwargs]
    assert (job.kwargs["loader"], job.kwargs["with_step"]) == ("numpy_wav", False)


WON: dict[str, Any] = {"loader": "tf_cache", "mode": "xla", "prefetch": 4, "workers": 2, "tokens_per_batch": 4096}
MACHINE: dict[str, Any] = {"fingerprint": "here", "cpu": {"model": "a processor"}}


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``prepare(**request)``: what was settled, of data that nobody reads."""
    asked: list[str] = []
    monkeypatch.setattr(train_job, "read_speech_data", lambda *_, **__: None)
    monkeypatch.setattr(train_job, "precompute", lambda *_, **__: asked.append("precompute"))
    monkeypatch.setattr(saved, "data_identity", lambda _: "data")
    monkeypatch.setattr(saved, "code_identity", lambda *_, **__: "code")

    def settled(**request: Any) -> Any:
        asked.clear()
        return prepare_training(TrainRequest(**{"data": tmp_path / "speech"} | request), MACHINE, tmp_path / "reports")

    settled.asked = asked
    return settled


def won(directory: Path, **changes: Any) -> Path:
    fields: dict[str, Any] = {
        "run": "r",
        "workload": "xtts",
        "arm": "a",
        "config": WON,
        "proven": True,
        "decided": True,
        "why": "a is faster.",
        "effect": None,
        "baseline": {"arm": "b", "config": {}},
        "blocks": 8,
        "accelerator": {"kind": "real", "label": "real device"},
        "steps_per_trial": 9,
        "fingerprint": Fingerprint(environment="e", cpu="a processor", code="code", data="data"),
        "xttsbench_version": "0.1.0",
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = write_best(directory, Best(**fields | changes))
    assert path is not None
    return path


def test_the_default_is_a_compiled_step_on_packed_features(prepare) -> None:
    found = prepare()
    assert (found.config["loader"], found.config["mode"], found.config["precision"]) == ("packed", "graph", "float32")
    assert found.config["batch_size"] == found.recipe.batches.batch_size
    assert (found.said, found.taken, prepare.asked) == ((), None, ["precompute"])


def test_the_newest_winner_is_followed_and_told(prepare, tmp_path: Path) -> None:
    won(tmp_path / "reports" / "20260101T000000Z-old", config={"loader": "numpy_wav"})
    path = won(tmp_path / "reports" / "20260202T000000Z-new")
    found = prepare(best=True)
    assert {key: found.config[key] for key in WON} == WON
    assert (found.recipe.batches.tokens_per_batch, found.recipe.batches.batch_size) == (4096, None)
    assert "batch_size" not in found.config
    assert (found.taken.path, found.taken.config, found.taken.differences) == (str(path), WON, ())
    assert found.taken.overridden == {}
    assert found.said[0].startswith(f"From {path}: loader=tf_cache")
    assert "(proven)" in found.said[0]


def test_a_named_winner_of_another_place_is_told_with_every_difference(prepare, tmp_path: Path) -> None:
    there = Fingerprint(environment="e", cpu="another processor", code="code", data="other data")
    device = {"kind": "emulated", "label": "emulated accelerator"}
    path = won(tmp_path / "mine", proven=False, fingerprint=there, accelerator=device)
    found = prepare(best=True, best_path=path.parent, recipe="tiny")
    assert not found.taken.proven
    assert "NOT proven: a is faster" in found.said[0]
    words = "; ".join(found.taken.differences)
    assert "processor: another processor where it was found" in words
    assert "data set" in words
    assert "emulated accelerator" in words


def test_settings_go_before_the_winner_and_switches_before_both(prepare, tmp_path: Path) -> None:
    won(tmp_path / "reports" / "20260202T000000Z-new")
    found = prepare(best=True, settings={"prefetch": 8, "batch_size": 4}, xla=False, native_loader=False)
    assert (found.config["prefetch"], found.config["batch_size"], found.config["mode"]) == (8, 4, "graph")
    assert found.config["loader"] == "numpy_wav"
    assert "tokens_per_batch" not in found.config
    assert set(found.taken.overridden) == {"prefetch", "tokens_per_batch", "mode", "loader"}
    said = "\n".join(found.said)
    assert "Trained otherwise: mode xla became graph" in said
    assert "Switched off on the command line, which leaves loader=numpy_wav, mode=graph" in said
    assert prepare.asked == []


@pytest.mark.parametrize(
    ("switch", "changed"),
    [
        ({"graph": False}, {"mode": "eager"}),
        ({"xla": False}, {"mode": "graph"}),
        ({"native_loader": False}, {"loader": "numpy_wav"}),
        ({"bucketing": False}, {"bucketing": False}),
        ({"overlap": False}, {"prefetch": 0, "workers": 0, "device_prefetch": 0}),
        ({"device_prefetch": False}, {"device_prefetch": 0}),
    ],
)
def test_each_optimisation_can_be_switched_off_alone(prepare, switch, changed) -> None:
    asked = {"settings": {"device_prefetch": 2}}
    before, after = prepare(**asked), prepare(**asked, **switch)
    assert after.config == before.config | changed
    assert after.recipe.batches.bucketing is after.config["bucketing"]
    assert after.job(TrainRequest(**switch), Path()).overlap is switch.get("overlap", True)
    assert ("debugging" in " ".join(after.said)) is (switch == {"graph": False})


def test_options_and_dotted_settings_change_the_recipe(prepare) -> None:
    settings = {"optimizer.learning_rate": 0.5, "training.schedule.kind": "cosine", "tokens_per_batch": 2048}
    found = prepare(steps=7, accumulation=4, checkpoint_every=3, settings=settings).recipe
    assert (found.training.steps, found.training.accumulation, found.training.checkpoint_every) == (7, 4, 3)
    assert (found.optimizer.learning_rate, found.training.schedule.kind) == (0.5, "cosine")
    assert (found.batches.tokens_per_batch, found.batches.batch_size) == (2048, None)


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"nonsense": 1}, UsageError, "no such key"),
        ({"nowhere.at": 1}, UsageError, "no section 'nowhere'"),
        ({"optimizer.learning_rate.deep": 1}, UsageError, "no section 'learning_rate'"),
        ({"optimizer.nonsense": 1}, InvalidInputError, "optimizer.nonsense"),
        ({"optimizer.learning_rate": -1}, InvalidInputError, "got -1"),
        ({"loader": "none"}, InvalidInputError, "one of numpy_wav"),
        ({"batch_size": 2, "tokens_per_batch": 100}, InvalidInputError, "two ways"),
    ],
)
def test_what_cannot_be_set_is_one_sentence(prepare, settings, error: type[XttsbenchError], said: str) -> None:
    with pytest.raises(error, match=said):
        prepare(settings=settings)


def test_a_winner_that_is_not_there_or_of_another_target_is_refused(prepare, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="run 'xttsbench sweep"):
        prepare(best=True)
    with pytest.raises(UsageError, match=r"is of mine.py:make"):
        prepare(best=True, best_path=won(tmp_path / "x", workload=None, target="mine.py:make"))


def test_the_job_holds_everything(prepare, tmp_path: Path) -> None:
    emulated = Accelerator(kind="emulated", label="emulated", step_times_ms=(5.0,))
    options: dict[str, Any] = {"seed": 3, "strategy": "mirrored", "logical_cpus": 2, "input_workers": 1}
    job = prepare().job(TrainRequest(**options, device_memory_mb=64, accelerator=emulated), tmp_path)
    assert {key: getattr(job, key) for key in options} == options
    assert (job.device_memory_mb, job.accelerator_ms, job.directory) == (64, (5.0,), str(tmp_path))


CHANGES: list[tuple[dict[str, Any], str | None]] = [
    ({"seed": 3}, "seed was 0 and is 3"),
    ({"settings": {"model.layers": 2}}, "model.layers"),
    ({"settings": {"batch_size": 4}}, "batches.batch_size"),
    ({"settings": {"precision": "mixed_bfloat16"}}, "precision was float32"),
    ({"settings": {"training.ema_decay": 0.5}}, "training.ema_decay"),
    ({"steps": 5000, "checkpoint_every": 7, "settings": {"loader": "tf_wav", "mode": "xla", "prefetch": 2}}, None),
]


@pytest.mark.parametrize(("request_", "said"), CHANGES)
def test_a_run_goes_on_only_as_it_began(prepare, request_: dict[str, Any], said: str | None) -> None:
    before, now = prepare().job(TrainRequest(), Path()), prepare(**request_).job(TrainRequest(**request_), Path())
    if said is None:
        refuse_another(before, now)
        return
    with pytest.raises(UsageError, match=said):
        refuse_another(before, now)


def test_other_data_are_refused_before_anything_is_started() -> None:
    def plan(data: str | None) -> RunPlan:
        return run_plan(kind="train", kwargs={"data": f"set-{data}"}, data=data)

    refuse_other_data(plan("a"), plan("a"), Path("run"))
    refuse_other_data(plan(None), plan("a"), Path("run"))
    with pytest.raises(UsageError, match="'run' holds a run on the data of set-a, and set-b holds others"):
        refuse_other_data(plan("a"), plan("b"), Path("run"))


def test_processes_for_what_has_no_python_for_each_clip_are_refused_at_once(prepare) -> None:
    for loader in ("tf_cache", "packed"):
        with pytest.raises(UsageError, match=f"loader={loader} has no Python for each clip .* take one of numpy_wav"):
            prepare(settings={"loader": loader}, input_workers=2)
    with pytest.raises(UsageError, match="each process would keep the features of all clips for itself"):
        prepare(settings={"loader": "numpy_wav", "cache": True}, input_workers=2)
    assert prepare(settings={"loader": "numpy_wav"}, input_workers=2).config["loader"] == "numpy_wav"
