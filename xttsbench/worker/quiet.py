"""Keeps TensorFlow's notices at its import to itself, unless the import fails."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_unless_it_fails() -> Iterator[None]:
    """Keep what C++ writes to standard error while TensorFlow is imported; show it if that fails.

    Those notices come before TensorFlow reads its log level, so no variable silences them.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") < "2":
        yield  # the user wants to see them
        return
    with tempfile.TemporaryFile() as kept:
        own = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(own, kept.read())
            raise
        finally:
            os.dup2(own, 2)
            os.close(own)
