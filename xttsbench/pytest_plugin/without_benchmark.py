"""The fixture where pytest-benchmark is not installed or switched off: it says so in the test that asks for it."""

from __future__ import annotations

import pytest


@pytest.fixture
def xttsbench_benchmark() -> None:
    """Fail with what to do."""
    pytest.fail(
        "xttsbench_benchmark is built on pytest-benchmark, which is not installed here or switched off "
        "(-p no:benchmark); install it with 'pip install pytest-benchmark', or leave the test out.",
        pytrace=False,
    )
