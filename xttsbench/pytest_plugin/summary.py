"""What the terminal summary shows at the end of a run, collected test by test."""

from __future__ import annotations

from typing import Final

import pytest

NOTES: Final = pytest.StashKey[list[str]]()
"""One line each, with the test's name in front."""
