"""What the end-to-end tests share: a second try for those that assert on measured times."""

from __future__ import annotations

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a test marked ``measured`` once more, in a directory of its own, where an assertion failed.

    A neighbour on the machine can change what is measured during one run; a wrong verdict comes twice.
    """
    try:
        return (yield)
    except AssertionError as error:
        if pyfuncitem.get_closest_marker("measured") is None:
            raise
        names = pyfuncitem._fixtureinfo.argnames
        arguments = {name: pyfuncitem.funcargs[name] for name in names}
        again = arguments["tmp_path"] / "again"
        again.mkdir()
        print(f"tried once more, since the first run failed: {str(error).splitlines()[0]}")
        pyfuncitem.obj(**arguments | {"tmp_path": again})
        return True
