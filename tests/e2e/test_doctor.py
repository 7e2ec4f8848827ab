"""``xttsbench doctor`` as a command: this machine, and this machine with a driver that is made up."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.e2e.parent import ROOT, python
from tests.unit.probes.test_nvml import COMPILER, EPOCH_US, build, needs_compiler
from xttsbench.records.machine import Examination

SHARED = {"neighbours", "memory", "disk-space", "shared-memory", "cpu-quota", "threads"}
"""What the machine that the tests run on may really have."""
LIBRARIES = (
    *("libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcusolver.so.11"),
    "libcusparse.so.12",
)


def doctor(*options: object, **environment: str) -> tuple[Examination, int, str]:
    """The record, the exit code, and standard error."""
    done = python("-m", "xttsbench", "doctor", "--json", *options, **environment)
    assert done.stdout, done.stderr
    return Examination.model_validate_json(done.stdout), done.returncode, done.stderr


def broken(found: Examination) -> set[str]:
    return {check.id for check in found.of("broken")} - SHARED


def seen(found: Examination, name: str) -> Any:
    return next(check for check in found.checks if check.id == name)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which a driver with two GPUs is found, and all of CUDA's libraries but cuDNN."""
    directory = build(tmp_path_factory.mktemp("driver"))
    empty = directory / "empty.c"
    empty.touch()
    for name in LIBRARIES:
        subprocess.run([str(COMPILER), "-shared", "-o", str(directory / name), str(empty)], check=True)
    return {"LD_LIBRARY_PATH": str(directory), "NVML_STUB_EPOCH_US": str(EPOCH_US), "CUDA_VISIBLE_DEVICES": "0,1"}


def test_this_machine_is_examined_without_tensorflow_in_the_parent() -> None:
    found, code, _ = doctor()
    assert code == bool(found.of("broken"))
    assert not broken(found)
    assert (seen(found, "tensorflow-starts").status, seen(found, "xla").status) == ("ok", "ok")
    assert found.machine.sight.threads["inter_op"] > 0


@needs_compiler
def test_a_library_that_is_missing_is_named(driver) -> None:
    found, code, _ = doctor(**driver)
    assert code == 1
    assert broken(found) == {"gpu-libraries"}
    check = seen(found, "gpu-libraries")
    assert check.seen.startswith("cannot be loaded: libcudnn.so.9 (")
    assert "libcublas" not in check.seen
    assert "pip install 'tensorflow[and-cuda]==" in check.remedy
    assert seen(found, "gpu-driver").seen.startswith("2 GPU(s): Stub GPU A, Stub GPU B; driver 550.54.15")


@needs_compiler
def test_a_mask_is_named(driver) -> None:
    found, code, _ = doctor(**driver | {"CUDA_VISIBLE_DEVICES": "-1"})
    assert (code, broken(found)) == (1, {"gpu-mask"})


def test_a_tensorflow_that_crashes_is_a_finding(tmp_path) -> None:
    (tmp_path / "tensorflow.py").write_text("import os, sys\nprint('bad CPU', file=sys.stderr, flush=True)\nos.abort()")
    found, code, errors = doctor(PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (code, broken(found)) == (1, {"tensorflow-starts"})
    assert "killed by SIGABRT; its last words: bad CPU" in seen(found, "tensorflow-starts").seen
    assert "Traceback" not in errors
