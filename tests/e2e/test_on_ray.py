"""``--on ray``: sweeps on a real cluster of several nodes on loopback, of which nodes die; ``make ray`` runs them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.e2e.parent import python
from tests.unit.conftest import arm_trial, trial
from xttsbench.errors import InvalidInputError
from xttsbench.execution.journal import read_trials
from xttsbench.planning import Part, Slot, parity_trial
from xttsbench.planning import arm_trial as arm_spec
from xttsbench.probes.environment import environment
from xttsbench.records.plan import Procedure
from xttsbench.records.trial import Parity, TrialRecord
from xttsbench.workflows.measure.cluster import Cluster
from xttsbench.workflows.measure.device import Device
from xttsbench.workflows.measure.session import Session, Silent
from xttsbench.workflows.scenario import Request, begin, search

ray = pytest.importorskip("ray", reason="no Ray; `make ray` installs it")
pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]  # Ray's own leave sockets open

ROOT = Path(__file__).parents[2]
ARMS = ROOT / "tests" / "targets" / "arms.py"
TEXT = (
    f"name: mine\ndescription: a test\ntarget: {ARMS}:waits\nsteps: 10\nwindow_s: 0.4\n"
    "grid: {ms: [40, 20, 39]}\nsweep: {blocks: 6}\nbudget_s: 500\n"
)
MEMORY = {"object_store_memory": 80 * 2**20}


class Nodes:
    """A cluster of nodes on this machine, whose head measures nothing."""

    def __init__(self, count: int, **each: Any) -> None:
        from ray.cluster_utils import Cluster as Loopback

        head = {"num_cpus": 0, "include_dashboard": False, **MEMORY}
        self.cluster = Loopback(initialize_head=True, head_node_args=head)
        self.nodes = {}
        for _ in range(count):
            node = self.cluster.add_node(**{"num_cpus": 1, **MEMORY, **each})
            self.nodes[node.node_id[:8]] = node

    @property
    def on(self) -> str:
        return f"ray:{self.cluster.address}"

    def kill(self, name: str) -> None:
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Nodes]]:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
    made = []

    def make(*arguments: Any, **each: Any) -> Nodes:
        made.append(Nodes(*arguments, **each))
        return made[-1]

    yield make
    ray.shutdown()
    for one in made:
        one.cluster.shutdown()


def sweep(folder: Path, *options: str, text: str = TEXT) -> subprocess.Popen[str]:
    (folder / "mine.yaml").write_text(text)
    command = [sys.executable, "-P", "-m", "xttsbench", "sweep", "--grid", "mine.yaml", "--out", "out", *options]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    _, err = process.communicate(timeout=500)
    assert process.returncode == code, err
    assert "Traceback" not in err
    return err


def journal(folder: Path) -> list[TrialRecord]:
    path = folder / "out" / "trials.jsonl"
    return read_trials(folder / "out") if path.exists() else []


def report(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out" / "report.json").read_text())


def living(folder: Path) -> list[TrialRecord]:
    path = folder / "out" / "rounds.jsonl"
    try:
        return [TrialRecord.model_validate_json(line) for line in path.read_bytes().splitlines()]
    except FileNotFoundError:
        return []


def wait_until(so: Callable[[], Any], process: subprocess.Popen[str] | None = None, seconds: float = 200) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := so()):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def trials_alive() -> list[psutil.Process]:
    """Helpers, and so trials, of this user: none is left when a run has ended."""
    return [one for one in psutil.process_iter(["cmdline"]) if f"{ROOT}" in _path_of(one) and _is_helper(one)]


def _is_helper(process: psutil.Process) -> bool:
    return "xttsbench.worker.helper" in (process.info["cmdline"] or ())


def _path_of(process: psutil.Process) -> str:
    try:
        return process.environ().get("PYTHONPATH", "")
    except psutil.Error:
        return ""


def each_block_is_one_machine_s_with_its_baseline(trials: list[TrialRecord]) -> None:
    blocks: dict[int, set[str]] = {}
    arms: dict[int, list[str]] = {}
    for one in trials:
        assert one.machine is not None
        if one.spec.kind == "arm":
            blocks.setdefault(one.spec.block, set()).add(one.machine.node)
            arms.setdefault(one.spec.block, []).append(one.spec.arm or "")
    assert all(len(machines) == 1 for machines in blocks.values())
    assert all("ms=40" in names and len({*names}) == len(names) for names in arms.values())


def test_a_sweep_on_three_nodes_survives_the_loss_of_one(tmp_path: Path, nodes) -> None:
    cluster = nodes(3)
    process = sweep(tmp_path, "--on", cluster.on)
    (parity,) = wait_until(lambda: journal(tmp_path), process)
    lost = parity.machine.node  # what it said of the data stays
    wait_until(lambda: any(one.machine.node == lost for one in living(tmp_path)), process)
    cluster.kill(lost)
    err = ended(process)
    trials = journal(tmp_path)
    each_block_is_one_machine_s_with_its_baseline(trials)
    assert len({one.machine.node for one in trials if one.spec.kind == "arm"}) == 2
    assert lost not in {one.machine.node for one in trials if one.spec.kind == "arm"}
    assert len({one.spec.trial_id for one in trials}) == len(trials)
    assert trials[0] == parity
    assert f"({lost}), CPU is lost (" in err
    assert any(f"({lost}), CPU was lost in it" in one for one in report(tmp_path)["warnings"])
    assert any("measured on 2 devices of a cluster" in one for one in report(tmp_path)["warnings"])
    best = yaml.safe_load((tmp_path / "out" / "best.yaml").read_text())
    assert (best["config"]["ms"], best["proven"]) == (20, True)
    assert not (tmp_path / "out" / "rounds.jsonl").exists()
    wait_until(lambda: not trials_alive(), seconds=20)


def test_a_sweep_whose_command_is_killed_is_resumed(tmp_path: Path, nodes) -> None:
    cluster = nodes(3)
    process = sweep(tmp_path, "--on", cluster.on)
    wait_until(lambda: living(tmp_path), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = journal(tmp_path)
    wait_until(lambda: not trials_alive(), seconds=30)  # nobody measures for a run that is gone
    ended(sweep(tmp_path, "--on", cluster.on, "--resume"))
    trials = journal(tmp_path)
    assert [one for one in trials if one in before] == [one for one in before if one.status == "ok"]
    assert any(one.spec.kind == "parity" for one in before)
    each_block_is_one_machine_s_with_its_baseline(trials)
    assert report(tmp_path)["best"]["config"]["ms"] == 20


def test_a_sweep_on_one_device_keeps_all_of_its_blocks(tmp_path: Path, nodes) -> None:
    cluster = nodes(1)
    ended(sweep(tmp_path, "--on", cluster.on))
    trials = journal(tmp_path)
    each_block_is_one_machine_s_with_its_baseline(trials)
    lines = (tmp_path / "out" / "trials.jsonl").read_text().splitlines()
    assert len({one.spec.trial_id for one in trials}) == len(trials) == len(lines)
    assert len({one.spec.block for one in trials}) > 1
    assert report(tmp_path)["best"]["config"]["ms"] == 20


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all_blocks_and_leaves_a_report(tmp_path: Path, nodes, number, code) -> None:
    cluster = nodes(2)
    process = sweep(tmp_path, "--on", cluster.on, "--redact")
    wait_until(lambda: living(tmp_path), process)
    process.send_signal(number)
    ended(process, code)
    assert {one.status for one in journal(tmp_path) if one.spec.kind == "arm"} <= {"interrupted", "ok"}
    assert any(one.status == "interrupted" and one.rounds for one in journal(tmp_path))
    assert any(arm["rounds"] for arm in report(tmp_path)["arms"])
    wait_until(lambda: not trials_alive(), seconds=20)
    written = "".join(file.read_text() for file in (tmp_path / "out").glob("*.json*"))
    assert str(ROOT) not in written
    assert str(tmp_path) not in written


class Stored:
    """Samples of a sweep, made by its own search: each part's follow from its specification alone."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed, self.environments = seed, [{"fingerprint": "f", "cpu": {}}]
        (folder / "data.py").write_text("def make(**_): ...\n")
        grid = "name: mine\ntarget: data.py:make\ngrid: {ms: [1, 2, 3, 4, 5, 6, 7, 8, 9]}\nbudget_s: 900\n"
        (folder / "mine.yaml").write_text(grid)

    def admit(self, _: Any) -> int:
        return 3

    def compare(self, parts: list[Part], session: Session, *, parity: bool = False, seed: int = 0, **_: Any):
        before = len(session.trials)
        for part in parts:
            if parity:
                others = [arm for arm in part.comparison.arms if arm.role == "candidate"]
                spec = parity_trial(part.comparison, others, number=0, block=0, seed=seed)
                found = Parity(batches=4, tolerance=1e-4, same=tuple(spec.others))
                session.keep(trial("parity", parity=found).model_copy(update={"spec": spec}), "parity")
            for number, arm in enumerate(part.comparison.arms if part.rounds else ()):
                slot = Slot(arm, part.comparison.accelerators[0])
                where = {"number": part.first + number, "block": part.block, "window_s": part.comparison.window_s}
                spec = arm_spec(part.comparison, slot, **where, seed=seed).model_copy(update={"turns": True})
                speed = 1 + 0.03 * (int(arm.id.removesuffix(":again")[3:]) * self.seed % 7)
                record = _in_turns(arm.id, 0.02 / speed, part.block, part.rounds, self.seed)
                session.keep(record.model_copy(update={"spec": spec}), arm.id)
        return session.trials[before:]


def _in_turns(arm: str, wall_s: float, block: int, rounds: int, seed: int) -> TrialRecord:
    each = 10
    record = arm_trial(arm, wall_s, block=block, steps=each * rounds, process_sd=0.01, seed=seed)
    (segment,) = [one for one in record.segments if one.name == "as_is"]
    numbers = tuple(min(max(row - 1, 0) // each, rounds - 1) for row in range(segment.steps))
    segment = segment.model_copy(update={"columns": {**segment.columns, "round": numbers}})
    marks = tuple({"round": n, "start_ns": n * 10**9, "end_ns": n * 10**9 + 9 * 10**8} for n in range(rounds))
    parts = record.model_dump() | {"segments": (segment.model_dump(),), "rounds": marks}
    return TrialRecord.model_validate(parts)


def test_the_same_samples_give_the_same_decisions_here_and_on_a_cluster(tmp_path, nodes, monkeypatch) -> None:
    """Both executors are given a whole journal of samples: what either makes of it is the same, byte for byte."""
    cluster = nodes(3)
    winners = [_decided_alike(tmp_path / str(seed), cluster, monkeypatch, seed) for seed in (1, 2, 3)]
    assert len({*winners}) > 1


def _decided_alike(folder: Path, cluster: Nodes, monkeypatch: pytest.MonkeyPatch, seed: int) -> str:
    here, there = folder / "here", folder / "there"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    stored = Stored(here, seed)
    stored.environments = [environment(here)]
    request = Request(scenario="mine.yaml", out=here / "out")
    with begin(request, "sweep", None, stored) as run, run.session(Silent()) as session:  # type: ignore[arg-type]
        how = {"until_s": 1e6, "seed": run.plan.seed, "progress": Silent(), "devices": 3}
        search(run.comparison, run.plan.procedure or Procedure(), session, compare=stored.compare, **how)
    samples = journal(here)
    assert len({one.spec.block for one in samples}) > 3
    shutil.copytree(here, there)
    lines = (there / "out" / "trials.jsonl").read_text().splitlines()
    (there / "out" / "trials.jsonl").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    text = (here / "mine.yaml").read_text()
    ended(sweep(here, "--resume", text=text))
    ended(sweep(there, "--resume", "--on", cluster.on, text=text))
    for place in (here, there):
        assert not (place / "out" / "broken-off.jsonl").exists()
        assert Counter(one.model_dump_json() for one in journal(place)) == Counter(
            one.model_dump_json() for one in samples
        )
    assert (here / "out" / "best.yaml").read_bytes() == (there / "out" / "best.yaml").read_bytes()
    assert (here / "out" / "trials.jsonl").read_bytes() == (there / "out" / "trials.jsonl").read_bytes()
    for part in ("arms", "best", "comparison", "aa", "parity", "verdict", "disturbance", "warnings"):
        assert report(here)[part] == report(there)[part]
    return report(here)["best"]["arm"]


class Broken(Device):
    """A device of a machine on which this package cannot be imported."""

    def __init__(self) -> None:
        raise ImportError("no xttsbench there")


class Nice(Device):
    """A device that says at which priority it runs."""

    def nice(self) -> int:
        """Its niceness."""
        return os.nice(0)


class OtherCode(Device):
    """A device of a machine whose files are other ones."""

    def admit(self, text: str) -> str:
        wanted = json.loads(text)
        return super().admit(json.dumps(wanted | {"folder": wanted["folder"] + "/other"}))


def test_a_machine_with_other_code_is_refused_with_its_path(tmp_path, nodes, monkeypatch) -> None:
    cluster = nodes(1)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    Stored(tmp_path, 1)
    (tmp_path / "other" / "data.py").write_text("def make(**_): return 1\n")
    ray.init(address=cluster.cluster.address, log_to_driver=False)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    own = Cluster(ray, actor=OtherCode)
    said = rf"the code of {tmp_path}/other/data\.py is not that of the run"
    request = Request(scenario="mine.yaml", out=tmp_path / "out")
    with pytest.raises(InvalidInputError, match=said), begin(request, "sweep", None, own):
        pass
    assert not (tmp_path / "out").exists()


def test_each_gpu_of_a_machine_is_a_device_with_its_share_of_the_processors(tmp_path, nodes, monkeypatch) -> None:
    cluster = nodes(1, num_cpus=2, num_gpus=2)
    monkeypatch.chdir(tmp_path)
    Stored(tmp_path, 1)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    ray.init(address=cluster.cluster.address, log_to_driver=False)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    own = Cluster(ray, actor=Nice)
    with begin(Request(scenario="mine.yaml", out=tmp_path / "out"), "sweep", None, own) as run:
        assert run.plan.devices == 2
        assert sorted(held.machine.device for held in own._free) == ["GPU 0", "GPU 1"]
        assert len({held.machine.fingerprint for held in own._free}) == 1
        assert [ray.get(held.actor.nice.remote()) for held in own._free] == [os.nice(0)] * 2


def test_a_machine_without_this_package_is_refused_and_one_without_processors_measures_nothing(
    tmp_path, nodes, monkeypatch
) -> None:
    cluster = nodes(1)
    cluster.cluster.add_node(num_cpus=0, num_gpus=1, **MEMORY)
    monkeypatch.chdir(tmp_path)
    Stored(tmp_path, 1)
    ray.init(address=cluster.cluster.address, log_to_driver=False)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    own, request = Cluster(ray, actor=Broken), Request(scenario="mine.yaml", out=tmp_path / "out")
    assert len(own._places()) == 1
    with pytest.raises(InvalidInputError, match="no xttsbench there"), begin(request, "sweep", None, own):
        pass


def test_tasks_of_ray_that_train_together_are_reported_as_one_job(tmp_path: Path) -> None:
    done = python(
        ROOT / "tests" / "targets" / "ranks_ray.py", tmp_path / "job", cwd=tmp_path, PYTHONPATH=os.environ["PYTHONPATH"]
    )
    assert done.returncode == 0, done.stderr[-2000:]
    done = python("-m", "xttsbench", "report", "--json", tmp_path / "job")
    found = json.loads(done.stdout)["findings"][0]
    assert (found["fault"], found["rank"], found["cause"]) == ("straggler", 1, "input")
    text = (ROOT / "tests" / "targets" / "ranks_ray.py").read_text("utf-8").splitlines()[found["line"]["line"] - 1]
    assert "time.sleep" in text
