"""What tests with TensorFlow leave as they found it, since those of several files share a process; and its forks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tensorflow.python.eager import context

from tests.tf.forks import Forks


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Starts scripts that find TensorFlow imported."""
    with Forks() as started:
        yield started


@pytest.fixture(autouse=True)
def no_seed_is_left() -> Iterator[None]:
    """A global seed that a test has set would make the next test's random ops repeatable."""
    yield
    if context.global_seed() is not None:
        context.set_global_seed(None)
