"""Licences of what an installation brings: the page is about this environment, and nobody's licence is a surprise."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.by_file import load

ROOT = Path(__file__).parents[2]
licences = load(ROOT / "docs" / "licences.py", "docs_licences")

OF_DEPENDENCIES = {
    "h5py": "tensorflow",
    "keras": "tensorflow",
    "markupsafe": "jinja2",
    "pydantic-core": "pydantic",
}
"""Imported and not declared: each is part of what the one beside it offers, which is declared."""
WHERE_IT_IS = {"ipython", "pytest", "tf-keras"}
"""Imported where the process has it already: by our plugins, and for scripts that train with Keras 2."""

IMPORT = re.compile(r"^ *(?:import|from(?=.* import )) (\w+)", re.MULTILINE)  # parsing all of them takes seconds


@pytest.fixture
def as_pinned() -> None:
    if other := licences.elsewhere():
        pytest.skip(f"not the environment of constraints.txt: {', '.join(other)}")


@pytest.mark.usefixtures("as_pinned")
def test_the_page_and_the_environment_name_the_same_distributions_and_licences() -> None:
    assert licences.PAGE.read_text(encoding="utf-8") == licences.page(), "make docs writes it again"


def test_no_licence_and_no_library_in_a_wheel_is_unknown() -> None:
    assert list(licences.problems({**licences.needed(), **licences.developing()})) == []


@pytest.mark.usefixtures("as_pinned")
def test_every_version_is_pinned() -> None:
    pins = licences.pins()
    assert [name for name in {**licences.needed(), **licences.developing()} if name not in pins] == []


def test_every_import_is_of_something_that_is_declared() -> None:
    project = licences.project()
    engines = project["optional-dependencies"]["ray"]  # which the development environment is without
    named = [*project["dependencies"], *project["optional-dependencies"]["remote"], *engines]
    declared = {canonicalize_name(Requirement(one).name) for one in named}
    assert set(OF_DEPENDENCIES.values()) <= declared
    allowed = declared.union(OF_DEPENDENCIES, WHERE_IT_IS)
    of_module = metadata.packages_distributions()
    known = {"xttsbench", "_typeshed", *sys.stdlib_module_names}
    known |= {Requirement(one).name for one in engines}
    known |= {module for module, names in of_module.items() if allowed & {canonicalize_name(one) for one in names}}
    found = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in sorted((ROOT / "xttsbench").rglob("*.py"))
        for module in IMPORT.findall(path.read_text(encoding="utf-8"))
        if module not in known
    ]
    assert found == []
