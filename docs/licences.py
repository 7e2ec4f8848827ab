"""Licences of all that an installation brings, read from the metadata of the environment, and which are allowed.

``make docs`` writes ``licences.md`` from it, and a test fails where the page is old, a licence is not allowed, or a
wheel brings foreign libraries that nobody looked at::

    python docs/licences.py
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
PAGE = HERE / "licences.md"
PYTHON = "3.11"  # on others libcst asks for another YAML parser
PERMISSIVE = {
    *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Open-MPI"),
    *("CC0-1.0", "IJG", "ISC", "MIT", "MIT-0", "MIT-CMU", "MIT-Modern-Variant", "PSF-2.0", "Zlib"),
    *("libpng-2.0", "libtiff"),
}
WITH_A_REASON = {
    "MPL-2.0": "Source of its own files has to be offered by whoever changes them and passes them on.",
    "LGPL-2.1-or-later": "Shared libraries, which programs of any licence may use and users may exchange: `soundfile` "
    "takes the system's libsndfile where it was installed from source.",
    "LGPL-3.0-only": "As the one before; a package of Python's own files, in setuptools for setuptools alone.",
    "GPL-3.0-or-later WITH GCC-exception-3.1": "Run-time library of the Fortran compiler: the exception is for "
    "programs of any licence that it was compiled into.",
    "FTL": "Permissive; who sells a product with it names the FreeType Project in the documentation.",
}
"""Licences that are not plainly permissive, and why xttsbench may need what is under them: it ships none of it."""

_FORTRAN = "BSD-3-Clause AND BSD-3-Clause-Open-MPI AND GPL-3.0-or-later WITH GCC-exception-3.1 AND LGPL-2.1-or-later"
INSIDE = {
    "google-crc32c": ("crc32c", "BSD-3-Clause"),
    "grpcio": ("certificates of Mozilla (`roots.pem`)", "MPL-2.0"),
    "grpcio-status": ("none; its licence file is that of `grpcio`", "MPL-2.0"),
    "h5py": ("HDF5, libaec", "BSD-3-Clause AND BSD-2-Clause"),
    "ml-dtypes": ("parts of Eigen", "MPL-2.0"),
    "numpy": ("OpenBLAS, LAPACK, libgfortran, libquadmath", _FORTRAN),
    "pillow": (
        "FreeType, HarfBuzz, libjpeg-turbo, libpng, libtiff, libwebp, libavif, OpenJPEG, Little CMS, and others",
        "FTL AND IJG AND libpng-2.0 AND libtiff AND MIT-Modern-Variant AND MIT AND BSD-3-Clause AND BSD-2-Clause",
    ),
    "scipy": ("OpenBLAS, LAPACK, libgfortran, libquadmath", _FORTRAN),
    "setuptools": ("autocommand, and others under MIT", "LGPL-3.0-only AND MIT"),
    "soundfile": (
        "libsndfile with LAME and mpg123; FLAC, Ogg, Opus, Vorbis",
        "LGPL-2.1-or-later AND BSD-3-Clause",
    ),
    "tensorflow": (
        "Eigen, DUCC, LLVM and many others, see its `THIRD_PARTY_NOTICES.txt`",
        "MPL-2.0 AND (BSD-3-Clause OR GPL-2.0-or-later) AND Apache-2.0 WITH LLVM-exception",
    ),
}
"""Distribution -> works of others in its wheel, and their licences: read from the notices that come with it."""

NAMED = {"nvidia-ml-py": "BSD-3-Clause", "ptyprocess": "ISC"}
"""Distributions whose metadata are unclear: at the top of pynvml.py, and in a licence file of other words."""

_ALIASES = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "isc license": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}
_TEXTS = {
    "Apache License, Version 2.0": "Apache-2.0",
    "Permission is hereby granted, free of charge": "MIT",
    "Redistribution and use in source and binary forms": "BSD-2-Clause",
}
_LICENCE_FILE = re.compile(r"(licen[cs]e|copying|notice)[^/]*$", re.IGNORECASE)
_LIBRARIES = re.compile(r"[^/]+\.libs(?=/)")
_COPYLEFT = re.compile(r"^ *(GNU (LESSER |AFFERO )?GENERAL PUBLIC LICENSE|Mozilla Public License)", re.MULTILINE)


def closure(requirements: Iterable[str]) -> dict[str, Distribution]:
    """Installed distributions that requirements ask for, directly or not, by name."""
    found: dict[str, Distribution] = {}
    waiting = [(Requirement(one), "") for one in requirements]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement, of_extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": of_extra}):
            continue
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                found[name] = metadata.distribution(name)
                waiting += [(Requirement(one), extra) for one in found[name].requires or ()]
    return dict(sorted(found.items()))


def needed() -> dict[str, Distribution]:
    """Distributions that xttsbench needs to run."""
    return closure(project()["dependencies"])


def developing() -> dict[str, Distribution]:
    """Distributions that ``.[dev]`` brings besides."""
    extras = project()["optional-dependencies"]
    beside = [one for name in ("dev", "parquet") for one in extras[name] if not one.startswith("xttsbench")]
    run = needed()
    return {name: one for name, one in closure(beside).items() if name not in run}


def project() -> dict[str, Any]:
    """Section ``project`` of pyproject.toml, from the file, since an editable installation may be older."""
    return tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins() -> dict[str, str]:
    """Version of each distribution in constraints.txt."""
    lines = (HERE.parent / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def elsewhere() -> list[str]:
    """Reasons why this is not the environment that the page is about: another Python, versions that are not pinned."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    pinned = pins()
    other = [name for name, one in needed().items() if pinned.get(name, one.version) != one.version]
    return [*([] if python == PYTHON else [f"Python {python}"]), *other]


def licence(one: Distribution) -> str:
    """SPDX expression of a distribution: as its metadata have it, else by the text of its own licence files."""
    told = one.metadata
    classifiers = (line.rpartition(" :: ")[2] for line in told.get_all("Classifier") or () if "License ::" in line)
    for said in (told.get("License-Expression"), told.get("License"), *classifiers):
        if said and (found := _expression(said)):
            return found
    for text in (told.get("License") or "", *licence_texts(one).values()):
        if found := _recognised(text):
            return found
    return NAMED.get(canonicalize_name(told["Name"]), "unknown")


def _expression(text: str) -> str | None:
    try:
        return _ALIASES.get(text.lower()) or str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return None


def _recognised(text: str) -> str | None:
    """Licence that a text begins with; those of libraries that a wheel brings may follow it."""
    text = " ".join(text.split())
    places = {text.find(phrase): name for phrase, name in _TEXTS.items() if phrase in text}
    if not places:
        return None
    at = min(places)
    three = places[at] == "BSD-2-Clause" and "either the name" in text[at : at + 1200]
    return "BSD-3-Clause" if three else places[at]


def licence_texts(one: Distribution) -> dict[str, str]:
    """Path -> text of each licence file that a distribution installed."""
    return {
        str(path): path.locate().read_text(encoding="utf-8", errors="replace")
        for path in one.files or ()
        if _LICENCE_FILE.search(str(path)) and path.locate().is_file()
    }


def allowed(expression: str) -> bool:
    """Whether all that an SPDX expression asks for is permissive or has its reason here."""
    parts = expression.replace("(", "").replace(")", "").split(" AND ")
    return all(any(one in PERMISSIVE or one in WITH_A_REASON for one in part.split(" OR ")) for part in parts)


def problems(distributions: dict[str, Distribution]) -> Iterator[str]:
    """Each distribution that somebody has to look at, and why."""
    for name, one in distributions.items():
        expressions = [licence(one), *INSIDE.get(name, ())[1:]]
        yield from (f"{name}: {found}: not an allowed licence" for found in expressions if not allowed(found))
        if name in INSIDE or "MPL" in expressions[0]:
            continue
        if libraries := {found[0] for path in one.files or () if (found := _LIBRARIES.match(str(path)))}:
            yield f"{name}: {', '.join(libraries)}: whose libraries are these? INSIDE says it of others"
        for path, text in licence_texts(one).items():
            if found := _COPYLEFT.search(text):
                yield f"{name}: {path} has the {found[1]}: what of it is under that? INSIDE says it of others"


_PAGE = """\
# Licences

<!-- Written by `make docs` from the metadata of what is installed: change docs/licences.py, not this page. -->

xttsbench is under {own}; MIT is [uPlot's](../xttsbench/reporting/assets/uPlot-LICENSE), which is inlined in
pages of reports. An installation on Linux on x86-64 with Python {python} brings the {number} distributions below, none
of which xttsbench ships; on other processors XProf and what that needs are left out. They stand by the licences that
the metadata and licence files of the versions in `constraints.txt` state. A test compares this page with the
environment, and refuses licences that are not known to be allowed. It is no legal advice.

## What an installation brings

{needed}

## What is not plainly permissive

| licence | where | why it is no hindrance |
|---|---|---|
{reasons}

## Works of others inside of these wheels

| distribution | contains | licence |
|---|---|---|
{inside}

## Extras

- **`gpu`** brings NVIDIA's libraries ({gpu}). They are no open source (`LicenseRef-NVIDIA-Proprietary`): read their
  licence before you pass on an image with them. They are not installed where this page is written.
- **`dev`**, with `parquet`, brings {beside} distributions more, which xttsbench does not need to run:
{tools}
- What **`docs`** and **`browser`** bring is not listed here.
"""


def page() -> str:
    """Text of licences.md."""
    run, tools = needed(), developing()
    rows = [(name, licence(one), *INSIDE.get(name, ("", ""))) for name, one in run.items()]
    where = {one: [name for name, own, _, inside in rows if one in f"{own} AND {inside}"] for one in WITH_A_REASON}
    gpu = [Requirement(one) for one in run["tensorflow"].requires or () if "and-cuda" in one]
    return _PAGE.format(
        own=project()["license"],
        python=PYTHON,
        number=len(run),
        needed="\n".join(_by_licence(run)),
        reasons="\n".join(f"| {one} | {', '.join(names)} | {WITH_A_REASON[one]} |" for one, names in where.items()),
        inside="\n".join(f"| {name} | {contains} | {inside} |" for name, _, contains, inside in rows if contains),
        gpu=", ".join(f"`{one.name}`" for one in gpu),
        beside=len(tools),
        tools="\n".join(f"    {line}" for line in _by_licence(tools)),
    )


def _by_licence(distributions: dict[str, Distribution]) -> list[str]:
    found: dict[str, list[str]] = {}
    for name, one in distributions.items():
        found.setdefault(licence(one), []).append(name)
    return [f"- {one}: {', '.join(names)}" for one, names in sorted(found.items())]


if __name__ == "__main__":
    if other := elsewhere():
        raise SystemExit(f"not written, since this is not what constraints.txt says: {', '.join(other)}")
    PAGE.write_text(page(), encoding="utf-8")
    raise SystemExit("\n".join(problems({**needed(), **developing()})) or 0)
