"""Wheel and sdist as somebody gets them: built of a copy of the checkout with rubbish in it, installed into
environments that know nothing of it, and used there after the copy is gone.

pip fetches what it needs, some gigabytes with TensorFlow.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

import xttsbench

pytestmark = [pytest.mark.slow, pytest.mark.alone]

ROOT = Path(__file__).parents[2]
NAME = f"xttsbench-{xttsbench.__version__}"
RUBBISH = (
    ".venv/lib/left.py",
    "build/lib/xttsbench/left.py",
    "dist/xttsbench-0.0.1.tar.gz",
    "reports/20260101T000000Z-diagnose-mine/report.json",
    "reports/secret.json",
    "scenarios/__pycache__/left.cpython-311.pyc",
    "training/__pycache__/left.cpython-311.pyc",
    "xttsbench.egg-info/PKG-INFO",
    "xttsbench/__pycache__/left.cpython-311.pyc",
    "xttsbench/cli/.mypy_cache/left.json",
    ".hypothesis/left",
    ".benchmarks/last.json",
    "notes.txt",
)
"""What building, testing and measuring leave in a checkout."""

TARGET = """
import time
import numpy as np
import tensorflow as tf

def slow(index):
    time.sleep(0.02)
    return np.float32(index)

def make():
    dataset = tf.data.Dataset.range(100_000).map(
        lambda index: tf.ensure_shape(tf.numpy_function(slow, [index], tf.float32), [])
    )

    @tf.function
    def step(batch):
        return tf.reduce_sum(batch)

    return dataset.batch(2), step
"""

IMPORT_ALL = """
import importlib, json, pkgutil, sys
import xttsbench
failed = {}
for found in pkgutil.walk_packages(xttsbench.__path__, "xttsbench."):
    try:
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        failed[found.name] = error.name
for name in xttsbench.__all__:
    getattr(xttsbench, name)
print(json.dumps({"failed": failed, "files": [getattr(m, "__file__", None) for m in [*sys.modules.values()]]}))
"""


def run(*command: object, cwd: Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """A command with no hint of the checkout in its environment."""
    hints = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    environment = {name: value for name, value in os.environ.items() if name not in hints}
    environment |= {"NO_COLOR": "1", "COLUMNS": "100", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment["XTTSBENCH_CACHE"] = str(cwd / "cache")
    return subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def ran(*command: object, cwd: Path, timeout_s: float = 120) -> str:
    """Standard output of a command that ends well."""
    done = run(*command, cwd=cwd, timeout_s=timeout_s)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@dataclass(frozen=True)
class Built:
    wheel: Path
    sdist: Path
    tracked: frozenset[str]
    """Files that are in git, of which both were built, with rubbish beside them."""

    def of_sdist(self) -> list[str]:
        with tarfile.open(self.sdist) as archive:
            names = [PurePosixPath(member.name) for member in archive.getmembers() if not member.isdir()]
        assert {name.parts[0] for name in names} == {NAME}
        return [name.relative_to(NAME).as_posix() for name in names]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    if not (ROOT / ".git").exists():
        pytest.skip("needs git, which tells what belongs to the project")
    tracked = ran("git", "ls-files", "-z", cwd=ROOT).split("\0")[:-1]
    tracked = [name for name in tracked if (ROOT / name).is_file()]
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("dist")
    for name in (*tracked, *RUBBISH):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        if name in RUBBISH:
            (copy / name).write_text("left")
        else:
            shutil.copyfile(ROOT / name, copy / name)
    for kind in ("--wheel", "--sdist"):
        ran(sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", out, copy, cwd=out)
    shutil.rmtree(copy)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Built(wheel, sdist, frozenset(tracked))


@pytest.fixture(scope="module")
def clean(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The ``bin`` of an environment with the wheel and what it asks for."""
    place = tmp_path_factory.mktemp("clean")
    ran(sys.executable, "-m", "venv", place / "venv", cwd=place)
    bin_ = place / "venv" / "bin"
    constraints = ("--constraint", ROOT / "constraints.txt")
    done = run(bin_ / "python", "-m", "pip", "install", *constraints, built.wheel, cwd=place, timeout_s=1800)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "yanked" not in done.stdout + done.stderr
    yield bin_
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder of a user's, with a target."""
    (tmp_path / "mine.py").write_text(TARGET)
    return tmp_path


def files_of(python: Path, cwd: Path) -> dict[str, str | None]:
    """Installed file -> its hash, without what is compiled at the installation."""
    code = (
        "import json; from importlib import metadata; "
        "print(json.dumps({str(f): f.hash and f.hash.value for f in metadata.files('xttsbench')}))"
    )
    found = json.loads(ran(python, "-P", "-c", code, cwd=cwd))
    return {name: value for name, value in found.items() if "__pycache__" not in name}


def test_the_sdist_is_what_is_in_git(built: Built) -> None:
    names = built.of_sdist()
    assert len(names) == len(set(names))
    of_ci = {name for name in built.tracked if name.startswith(".ci/")}
    assert {*names} - {"PKG-INFO"} == built.tracked - of_ci
    assert {"LICENSE", "README.md", "pyproject.toml", "constraints.txt"} < {*names}


def test_what_is_installed_works_together(clean: Path, elsewhere: Path) -> None:
    assert "No broken requirements" in ran(clean / "python", "-m", "pip", "check", cwd=elsewhere)


def test_every_module_is_imported_from_the_environment_alone(clean: Path, elsewhere: Path) -> None:
    found = json.loads(ran(clean / "python", "-P", "-c", IMPORT_ALL, cwd=elsewhere, timeout_s=300).splitlines()[-1])
    of_pytest = {name for name in found["failed"] if name.startswith("xttsbench.pytest_plugin")}
    assert {name: why for name, why in found["failed"].items() if name not in of_pytest} == {}
    assert {found["failed"][name] for name in of_pytest} == {"pytest"}
    inside = [Path(name) for name in found["files"] if name and name.partition("site-packages/")[2].startswith("xtts")]
    assert len(inside) > 300
    assert not [name for name in inside if not name.is_relative_to(clean.parent)]
    assert not [name for name in found["files"] if name and Path(name).is_relative_to(ROOT) and ".venv" not in name]


def test_a_target_is_diagnosed_and_its_report_built_again(clean: Path, elsewhere: Path) -> None:
    options = ("--budget", "20", "--out", "run")
    shown = ran(clean / "xttsbench", "diagnose", "mine.py:make", *options, cwd=elsewhere, timeout_s=300)
    report = json.loads((elsewhere / "run" / "report.json").read_bytes())
    assert report["verdict"]["bottleneck"] == "input"
    assert "mine.py" in shown
    page = (elsewhere / "run" / "report.html").read_text(encoding="utf-8")
    assert "uPlot" in page
    (elsewhere / "run" / "report.html").unlink()
    ran(clean / "xttsbench", "report", "run", cwd=elsewhere)
    assert (elsewhere / "run" / "report.html").read_text(encoding="utf-8") == page


def test_the_bundled_workload_and_trainer_run(clean: Path, elsewhere: Path) -> None:
    clips = ("--utterances", "12", "--min-s", "0.6", "--max-s", "1.2")
    ran(clean / "xttsbench", "data", "make", "--out", "speech", *clips, cwd=elsewhere, timeout_s=300)
    options = ("--data", "speech", "--out", "run", "--steps", "2", "--no-listening", "--set", "batch_size=4")
    ran(clean / "xttsbench", "train", *options, cwd=elsewhere, timeout_s=300)
    assert (elsewhere / "run" / "report.html").is_file()


def test_the_sdist_installs_the_files_of_the_wheel(built: Built, clean: Path, elsewhere: Path) -> None:
    ran(sys.executable, "-m", "venv", "second", cwd=elsewhere)
    python = elsewhere / "second" / "bin" / "python"
    (packages,) = (elsewhere / "second").glob("lib/python*/site-packages")
    ran(python, "-m", "pip", "install", "--no-deps", built.sdist, cwd=elsewhere, timeout_s=300)
    first, second = files_of(clean / "python", elsewhere), files_of(python, elsewhere)
    once = ("direct_url.json", "RECORD", "bin/xttsbench")  # name the archive and the environment
    assert sorted(first) == sorted(second)
    assert {n: h for n, h in first.items() if not n.endswith(once)} == {
        n: h for n, h in second.items() if not n.endswith(once)
    }
    (others,) = clean.parent.glob("lib/python*/site-packages")
    (packages / "of_the_first.pth").write_text(f"{others}\n")
    assert xttsbench.__version__ in ran(elsewhere / "second" / "bin" / "xttsbench", "--version", cwd=elsewhere)


def test_the_sdist_s_own_documents_and_tests_are_whole(built: Built, elsewhere: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(elsewhere, filter="data")
    root = elsewhere / NAME
    ran(sys.executable, root / "docs" / "links.py", cwd=elsewhere)
    tests = ("tests/unit/test_docs.py", "tests/unit/test_schemas.py", "tests/unit/test_matrix.py", "tests/unit/records")
    code = (
        "import sys, pytest; sys.path.insert(0, '.'); import xttsbench; "
        "assert xttsbench.__file__.startswith(sys.argv.pop(1)), xttsbench; sys.exit(pytest.main(sys.argv[1:]))"
    )
    ran(sys.executable, "-P", "-c", code, root, "-q", *tests, cwd=root, timeout_s=600)
