"""Licences of what an installation brings: the page is about this environment, and nobody's licence is a surprise."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from importlib.metadata import Distribution
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

BSD = "Redistribution and use in source and binary forms, with or without modification, are permitted"
MIT = "Permission is hereby granted, free of charge, to any person"
GPL = "                    GNU GENERAL PUBLIC LICENSE\n                       Version 3, 29 June 2007\n"


@pytest.fixture
def installed(tmp_path: Path):
    """``installed(metadata, **files)``: a distribution with those files, of which licence files are some."""

    def make(told: str, files: dict[str, str] | None = None) -> Distribution:
        info = tmp_path / "some-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: some\nVersion: 1\n{told}\n")
        for name, text in (files or {}).items():
            (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / name).write_text(text)
        (info / "RECORD").write_text("".join(f"{name},,\n" for name in files or {}))
        return Distribution.at(info)

    return make


@pytest.fixture
def as_pinned() -> None:
    if other := licences.elsewhere():
        pytest.skip(f"not the environment of constraints.txt: {', '.join(other)}")


@pytest.mark.usefixtures("as_pinned")
def test_the_page_and_the_environment_name_the_same_distributions_versions_and_licences() -> None:
    assert licences.PAGE.read_text(encoding="utf-8") == licences.page(), "make docs writes it again"


def test_no_licence_and_no_library_in_a_wheel_is_unknown() -> None:
    assert list(licences.problems({**licences.needed(), **licences.developing()})) == []


@pytest.mark.usefixtures("as_pinned")
def test_every_version_is_pinned() -> None:
    pins = licences.pins()
    assert [name for name in {**licences.needed(), **licences.developing()} if name not in pins] == []


def test_every_import_is_of_something_that_is_declared() -> None:
    declared = {canonicalize_name(Requirement(one).name) for one in licences.project()["dependencies"]}
    assert set(OF_DEPENDENCIES.values()) <= declared
    allowed = declared.union(OF_DEPENDENCIES, WHERE_IT_IS)
    of_module = metadata.packages_distributions()
    known = {"xttsbench", "_typeshed", *sys.stdlib_module_names}
    known |= {module for module, names in of_module.items() if allowed & {canonicalize_name(one) for one in names}}
    found = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in sorted((ROOT / "xttsbench").rglob("*.py"))
        for module in IMPORT.findall(path.read_text(encoding="utf-8"))
        if module not in known
    ]
    assert found == []


@pytest.mark.parametrize(
    ("told", "text", "expected"),
    [
        ("License-Expression: MIT OR Apache-2.0\nLicense: BSD", MIT, "MIT OR Apache-2.0"),
        ("License: apache-2.0", "", "Apache-2.0"),
        ("License: Apache 2.0", "", "Apache-2.0"),
        ("License: BSD\nClassifier: License :: OSI Approved :: BSD License", BSD, "BSD-2-Clause"),
        ("License: BSD", f"{BSD} ...\n  * Neither the name of the author", "BSD-3-Clause"),
        ("Classifier: License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)", "", "MPL-2.0"),
        ("", f"Copyright\n\nPermission is\nhereby granted, free of charge\n\n{BSD}", "MIT"),
        ("", "You may do as you like", "unknown"),
        ("License: SomeCompany EULA", "", "unknown"),
        ("License: GPL-3.0-or-later", "", "GPL-3.0-or-later"),
    ],
)
def test_a_licence_is_read_from_metadata_or_from_the_distribution_s_own_text(installed, told, text, expected) -> None:
    assert licences.licence(installed(told, {"some-1.dist-info/licenses/LICENSE.txt": text})) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("MPL-2.0 AND (BSD-3-Clause OR GPL-2.0-or-later)", True),
        ("GPL-3.0-or-later WITH GCC-exception-3.1", True),
        ("GPL-3.0-or-later", False),
        ("unknown", False),
    ],
)
def test_an_expression_is_allowed_where_all_that_it_asks_for_is(expression: str, expected: bool) -> None:
    assert licences.allowed(expression) is expected


@pytest.mark.parametrize(
    ("told", "files", "told_of"),
    [
        ("License: MIT", {}, ""),
        ("License: GPL-3.0-or-later", {}, "some: GPL-3.0-or-later: not an allowed licence"),
        ("", {}, "some: unknown: not an allowed licence"),
        ("License: MIT", {"some.libs/libother.so.1": ""}, "some: some.libs: whose libraries"),
        ("License: MIT", {"some/vendored/COPYING": GPL}, "some: some/vendored/COPYING has the GNU GENERAL PUBLIC"),
        ("License: MPL-2.0", {"some-1.dist-info/LICENSE": "Mozilla Public License Version 2.0"}, ""),
    ],
)
def test_what_somebody_has_to_look_at_is_named(installed, told: str, files: dict[str, str], told_of: str) -> None:
    found = list(licences.problems({"some": installed(told, files)}))
    assert [line[: len(told_of)] for line in found] == [told_of] * bool(told_of)


def test_a_closure_follows_extras_and_markers_and_meets_circles(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {
        "a": ["B[fast]>=1", "c; python_version < '3'"],
        "b": ["d; extra == 'fast'", "e; extra == 'slow'", "a"],
        "d": [],
    }

    class Some:
        def __init__(self, name: str) -> None:
            self.requires = asked[name]

    monkeypatch.setattr(licences.metadata, "distribution", Some)
    assert list(licences.closure(["A"])) == ["a", "b", "d"]
