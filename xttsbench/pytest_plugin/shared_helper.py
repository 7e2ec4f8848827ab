"""One helper process for all tests of a run that measures nothing, so that TensorFlow is imported once.

Where something is measured each block has a helper of its own, since children of one share its memory layout.
"""

from __future__ import annotations

from typing import Final

import pytest

from xttsbench.execution.helper import Helper

_HELPER: Final = pytest.StashKey[Helper]()


def shared_helper(config: pytest.Config) -> Helper:
    """The helper, started at the first call and ended with the run.

    Raises:
        HelperError: TensorFlow cannot be started here.
    """
    if _HELPER not in config.stash:
        helper = Helper()
        helper.__enter__()
        config.add_cleanup(lambda: helper.__exit__(None, None, None))
        helper.wait_ready()
        config.stash[_HELPER] = helper
    return config.stash[_HELPER]
