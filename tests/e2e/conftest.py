"""What the end-to-end tests share: one helper for all blocks."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from xttsbench.execution.helper import Helper


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """What a shell starts in the background ignores SIGINT, and so would all that tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _nothing_goes_on() -> Iterator[None]:
    """What a test that failed has left running would run for ever."""
    before = set(psutil.Process().children(recursive=True))
    yield
    for left in set(psutil.Process().children(recursive=True)) - before:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.kill()


class Shared:
    """Stands for a helper of a block's own, and leaves the one that it is when the block is over."""

    def __init__(self, helper: Helper) -> None:
        self.helper = helper

    def __getattr__(self, name: str) -> Any:
        return getattr(self.helper, name)

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait_ready(self) -> None:
        pass


@pytest.fixture(scope="session")
def helper() -> Iterator[Helper]:
    """A helper that is started once: TensorFlow takes seconds to import."""
    with Helper(print_to_stderr=True) as started:
        started.wait_ready()
        yield started


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> Callable[[Helper], None]:
    """``share(helper)``: runs in this process use that one for all of their blocks."""
    return lambda helper: monkeypatch.setattr("xttsbench.workflows.measure.session.Helper", lambda **_: Shared(helper))


@pytest.fixture
def on_one_helper(helper: Helper, share: Callable[[Helper], None]) -> None:
    """Runs in this process use the one that is started once."""
    share(helper)
