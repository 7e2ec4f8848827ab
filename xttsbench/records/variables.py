"""The environment variables that a run may name: a list of names, beside this file, and no prefixes.

``TF_`` is Terraform's prefix as well, and anybody's who calls a password so.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

_LINES: Final = files(__package__).joinpath("variables.txt").read_text(encoding="utf-8").splitlines()
KNOWN: Final = frozenset(name for line in _LINES if not line.startswith("#") for name in line.split())
"""Names of the variables."""
