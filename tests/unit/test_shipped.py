"""Scenarios and recipes of the project are found by name, in a checkout and in an installed package."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from xttsbench import shipped as module
from xttsbench.errors import InvalidInputError
from xttsbench.shipped import Kind, available, locate, shipped

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["scenarios", "training"])
def test_every_file_of_the_checkout_is_found_and_is_a_mapping(kind: Kind) -> None:
    files = {path for path in (ROOT / kind).rglob("*.yaml")}
    found = {shipped(kind, name) for name in available(kind)}
    assert found == files
    assert found
    for path in found:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert isinstance(content, dict), path
        assert content["name"] == path.stem
        assert content["description"]
        assert path.read_text(encoding="utf-8").startswith("# "), f"{path} opens without saying what it is for"


def test_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(InvalidInputError, match=r"no scenario is called 'diagnos'; the nearest names: diagnose"):
        shipped("scenarios", "diagnos")


@pytest.mark.parametrize("name", ["../training/tiny", "/etc/hosts", "", ".", "..", "diagnose.yaml", "a/b", "a\\b"])
def test_a_name_is_never_a_path(name: str) -> None:
    with pytest.raises(InvalidInputError, match="nearest names"):
        shipped("scenarios", name)


def test_package_data_come_before_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "xttsbench"
    beside = tmp_path / "training"
    inside = package / "_shipped" / "training"
    beside.mkdir()
    (beside / "one.yaml").touch()
    package.mkdir()
    monkeypatch.setattr(module, "_PACKAGE", package)
    assert shipped("training", "one") == beside / "one.yaml"
    inside.mkdir(parents=True)
    (inside / "one.yaml").touch()
    assert shipped("training", "one") == inside / "one.yaml"


def test_nothing_shipped_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PACKAGE", tmp_path / "xttsbench")
    with pytest.raises(
        InvalidInputError, match="no training recipe is called 'tiny'; the nearest names: none is shipped"
    ):
        shipped("training", "tiny")


def test_a_recipe_is_a_name_or_a_path() -> None:
    assert locate("training", "tiny").name == "tiny.yaml"
    assert locate("training", "mine.yaml") == Path("mine.yaml")
    with pytest.raises(InvalidInputError, match="the nearest names: tiny"):
        locate("training", "tinny")
