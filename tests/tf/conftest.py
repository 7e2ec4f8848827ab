"""What every test with TensorFlow leaves as it found it, since tests of several files share a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tensorflow.python.eager import context


@pytest.fixture(autouse=True)
def no_seed_is_left() -> Iterator[None]:
    """A global seed that a test has set would make the next test's random ops repeatable."""
    yield
    if context.global_seed() is not None:
        context.set_global_seed(None)
