"""A device of a cluster without any engine: what it refuses, what it tells, and ``--on`` that names no cluster."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from xttsbench.errors import UsageError
from xttsbench.workflows import code_identity
from xttsbench.workflows.measure import device as module
from xttsbench.workflows.measure.cluster import connected
from xttsbench.workflows.measure.device import Device, package_identity
from xttsbench.workflows.measure.messages import Admission, PartOrder


@pytest.fixture
def admit(build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``admit(**changes)``: a device, and its answer to a run of ``data.py`` in a folder."""
    (tmp_path / "data.py").write_text("def make(): ...\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    code = code_identity.code_identity("data.py:make", bundled=False)
    comparison = build.comparison("a", "b", target="data.py:make")
    plan = build.run_plan(kind="sweep", code=code, comparison=comparison)

    def answered(**changes: Any) -> tuple[Device, dict[str, Any]]:
        wanted = {
            "plan": plan,
            "package": package_identity(),
            "folder": str(tmp_path),
            "variables": {},
            "place": {"node": "n1"},
        } | changes
        device = Device()
        return device, json.loads(device.admit(Admission(**wanted).model_dump_json()))

    return answered


def test_a_machine_with_the_same_files_is_taken_and_named(admit) -> None:
    _, found = admit()
    assert found["refused"] is None
    assert (found["machine"]["node"], found["machine"]["device"]) == ("n1", "CPU")
    assert found["machine"]["fingerprint"] == found["environment"]["fingerprint"]


def test_a_machine_with_other_files_or_without_any_is_refused_with_their_place(admit, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "data.py").write_text("def make(): return 1\n")
    _, found = admit(folder=str(tmp_path / "elsewhere"))
    assert f"the code of {tmp_path}/elsewhere/data.py is not that of the run" in found["refused"]
    (tmp_path / "elsewhere" / "data.py").unlink()
    assert "data.py" in admit(folder=str(tmp_path / "elsewhere"))[1]["refused"]


def test_a_machine_with_another_version_of_this_package_is_refused(admit) -> None:
    assert "another version" in admit(package="0" * 16)[1]["refused"]


def test_processors_are_shared_by_the_devices_of_a_machine_and_variables_are_the_user_s(admit, monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 5})
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "0")
    place = {"node": "n1", "index": 1, "devices": 3, "gpu": True}
    device, found = admit(place=place, variables={"TF_NUM_INTEROP_THREADS": "2"})
    assert (device.processors, found["machine"]["device"]) == ([2, 3], "GPU 1")
    assert "OMP_NUM_THREADS" not in os.environ
    assert os.environ["TF_NUM_INTEROP_THREADS"] == "2"
    assert admit(place=place | {"devices": 9})[0].processors == [1]


def test_what_is_told_of_a_part_bears_the_machine_and_no_secret(admit, build, monkeypatch) -> None:
    """The part is measured by what measures at home; here that asks once, and keeps a trial."""

    def compare(comparison, session, *, enough, **_: Any) -> None:
        session.keep_rounds([build.arm_trial("a")])
        assert enough([]) == ["b"]
        session.keep(build.arm_trial("b", notes=("token=Mark3r-0f-a-secret",)), "b")
        raise ValueError("broke")

    monkeypatch.setattr(module, "compare_arms", compare)
    device, _ = admit()
    order = PartOrder(comparison=build.comparison("a", "b"), how={"budget_s": 9.0}, asks=True)
    measuring = threading.Thread(target=device.measure, args=(order.model_dump_json(),))
    measuring.start()
    told = [json.loads(device.hear()) for _ in range(2)]
    told += [json.loads(device.hear(["b"]))] + [json.loads(device.hear()) for _ in range(2)]
    measuring.join()
    said = [{name: value for name, value in one.items() if value} for one in told]
    assert [next(iter(one)) for one in said] == ["rounds", "asks", "trial", "failed", "ends"]
    assert said[2]["trial"]["machine"]["node"] == said[0]["rounds"][0]["machine"]["node"] == "n1"
    assert said[2]["trial"]["notes"] == ["token=***"]
    assert said[3]["failed"] == "ValueError: broke"


def test_a_part_is_measured_with_the_same_processors_as_the_one_before(admit, build, monkeypatch) -> None:
    allowed = {0, 1, 2, 3, 4, 5}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed)
    narrowed = []

    def narrow(_: int, processors: list[int]) -> None:
        narrowed.append(processors)
        allowed.intersection_update(processors)  # of the thread, which measures the next part as well

    monkeypatch.setattr(os, "sched_setaffinity", narrow)
    monkeypatch.setattr(module, "compare_arms", lambda *_, **__: None)
    device, _ = admit(place={"node": "n1", "index": 1, "devices": 2, "gpu": True})
    order = PartOrder(comparison=build.comparison("a", "b"), how={"budget_s": 9.0}).model_dump_json()
    for _ in range(2):
        device.measure(order)
    assert narrowed == [[3, 4, 5]] * 2


def test_an_order_that_cannot_be_read_is_told(admit) -> None:
    device, _ = admit()
    device.measure("{}")
    told = [json.loads(device.hear()) for _ in range(2)]
    assert told[0]["failed"].startswith("ValidationError")
    assert told[1]["ends"]


def test_equal_machines_are_one_kind_whichever_gpu_a_process_was_given(admit, monkeypatch) -> None:
    monkeypatch.setattr("xttsbench.probes.environment._gpus", lambda _: {"gpus": [{"name": "H"}], "gpu_driver": "1"})
    found = []
    for number in ("0", "3"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", number)
        found.append(admit(place={"node": "n1", "gpu": True})[1]["machine"])
    assert [one["device"] for one in found] == ["GPU 0", "GPU 3"]
    assert found[0]["fingerprint"] == found[1]["fingerprint"]


def test_with_redact_no_name_of_a_machine_leaves_it(admit, build, monkeypatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "secret-node-7")
    assert admit()[1]["machine"]["host"] == "secret-node-7"
    plan = build.run_plan(kind="sweep", comparison=build.comparison("a", "b"), redact=True, code=None)
    assert "secret-node-7" not in json.dumps(admit(plan=plan)[1])


@pytest.mark.parametrize("on", ["slurm", "Ray", "ray+tls:host"])
def test_an_engine_that_there_is_not_is_refused(on: str) -> None:
    with pytest.raises(UsageError, match=r"write ray for the cluster of this machine, or ray:HOST:PORT"), connected(on):
        pass


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'xttsbench\[ray\]'"), connected("ray"):
        pass
