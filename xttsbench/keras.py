"""The Keras callback that watches ``fit``: ``model.fit(data, callbacks=[xttsbench.keras.Watch()])``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from xttsbench.api import print_summary
from xttsbench.workflows.watch import session


class Watch(tf.keras.callbacks.Callback):
    """Watches the training of this process, and says at its end where its steps went and which of them stalled.

    Make it before ``fit`` is called, so that the waits for data inside the compiled step are seen. All calls of ``fit``
    in a process are one run.

    Args:
        out: the run's own directory; ``None`` for ``reports/<UTC time>-watch-<script>/``.
        tensorboard: directory for scalars; ``None`` for none.
        quiet: print nothing at the end.

    Attributes:
        summary: what the run comes to, as ``summary.json`` has it; ``None`` before the end of ``fit``.
    """

    def __init__(
        self, out: str | Path | None = None, *, tensorboard: str | Path | None = None, quiet: bool = False
    ) -> None:
        super().__init__()
        self.summary: Any = None
        self._session = session("fit", out=out, tensorboard=tensorboard, shown=None if quiet else print_summary)

    def _implements_train_batch_hooks(self) -> bool:
        """Whether Keras 2 calls hooks of batches; it asks callbacks of Keras 3 as well."""
        return False

    _implements_test_batch_hooks = _implements_predict_batch_hooks = _implements_train_batch_hooks

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Write the summary, and print it."""
        self.summary = self._session.finish()
