"""The project as it is installed: the wheel's content, used outside the checkout, and the checkout's own door."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import xttsbench

ROOT = Path(__file__).parents[2]


def python(*arguments: str, cwd: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python elsewhere, with one directory first on its path and no other hint of the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    built = python("-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT), cwd=out)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    done = python(
        "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel), cwd=site
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return site


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"xttsbench-{xttsbench.__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"xttsbench", f"xttsbench-{xttsbench.__version__}.dist-info"}
    assert "xttsbench/py.typed" in names
    for kind in ("scenarios", "training"):
        packed = {name.rsplit("/", 1)[1] for name in names if name.startswith(f"xttsbench/_shipped/{kind}/")}
        assert packed == {path.name for path in (ROOT / kind).iterdir()}


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "xttsbench").rglob("*") if path.is_file()}
    assert {name for name in files - names if "__pycache__" not in name} == set()


@pytest.mark.parametrize(("kind", "name"), [("scenarios", "diagnose"), ("training", "tiny")])
def test_an_installed_package_reads_its_own_yaml(installed: Path, tmp_path: Path, kind: str, name: str) -> None:
    code = f"from xttsbench.shipped import shipped; print(shipped({kind!r}, {name!r}))"
    done = python("-c", code, cwd=tmp_path, path=installed)
    assert done.returncode == 0, done.stderr
    found = Path(done.stdout.strip())
    assert found.is_relative_to(installed / "xttsbench")
    assert found.read_bytes() == (ROOT / kind / f"{name}.yaml").read_bytes()


def test_an_installed_package_runs_from_anywhere(installed: Path, tmp_path: Path) -> None:
    done = python("-m", "xttsbench", "--help", cwd=tmp_path, path=installed)
    assert done.returncode == 0, done.stderr
    assert "diagnose" in done.stdout


def test_the_door_of_a_checkout(tmp_path: Path) -> None:
    done = python(str(ROOT / "cli.py"), "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "diagnose" in done.stdout


def test_the_command_line_imports_neither_tensorflow_nor_sound_nor_pandas(tmp_path: Path) -> None:
    slow = {"tensorflow", "keras", "soundfile", "pandas", "pyarrow", "IPython", "xprof"}
    code = f"import sys, xttsbench.cli.app, xttsbench.cli.read; print(sorted({slow!r} & set(sys.modules)))"
    done = python("-c", code, cwd=tmp_path, path=ROOT)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_constraints_name_packages_and_versions_only() -> None:
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        name, separator, version = line.partition("==")
        assert separator, line
        assert name.replace("-", "").replace("_", "").replace(".", "").isalnum(), line
        assert version[0].isdigit(), line
        assert not set(version) & set(" @/:;"), line
