"""What the end-to-end tests share: one helper for all blocks, and a second try where measured times are asserted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from xttsbench.execution.helper import Helper


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
    return lambda helper: monkeypatch.setattr("xttsbench.workflows.session.Helper", lambda **_: Shared(helper))


@pytest.fixture
def on_one_helper(helper: Helper, share: Callable[[Helper], None]) -> None:
    """Runs in this process use the one that is started once."""
    share(helper)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a test marked ``measured`` once more, in a directory of its own, where it failed.

    A neighbour on the machine can change what is measured during one run; a wrong verdict comes twice. A report that
    lacks what a test looks for raises more than AssertionError: a KeyError, a ValueError of an unpacking.
    """
    try:
        return (yield)
    except Exception as error:  # what pytest raises to skip, fail or stop derives from BaseException
        if pyfuncitem.get_closest_marker("measured") is None:
            raise
        names = pyfuncitem._fixtureinfo.argnames
        arguments = {name: pyfuncitem.funcargs[name] for name in names}
        again = arguments["tmp_path"] / "again"
        again.mkdir()
        print(f"tried once more, since the first run failed: {(str(error) or repr(error)).splitlines()[0]}")
        pyfuncitem.obj(**arguments | {"tmp_path": again})
        return True
