"""``python plain.py FILE [FUNCTION] ...``: how long a step takes by a plain loop and a clock, without xttsbench.

Prints ``{"step_s", "steps"}``, the mean of whole epochs after one that is not counted; with ``--digest`` instead what
the first elements are. A script (no FUNCTION) is run as it is, ended when it was looked at for long enough; its steps
are the batches that it asks for (``--script loop``) or that ``fit`` or ``train_on_batch`` ends (``--script fit``). With
``--plan`` the fixes of an ``optimized.yaml`` are applied to the dataset first, which is all that xttsbench does here.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import random
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ELEMENTS = 64
EPOCHS = 4
LONGEST_S = 20.0  # that a digest is of: the first elements in order, and the samples of some epochs
WARM_UP = 100  # steps of a script, or those of LONGEST_S, that are not counted: it may compile and trace meanwhile


class EnoughError(BaseException):
    """A script was looked at for long enough."""


def loaded(file: Path, function: str, plan: Path | None) -> tuple[Any, Callable[[Any], Any] | None]:
    """The dataset that a target returns, and its step, if it has one."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    sys.path.insert(0, str(file.parent))  # what lies beside it
    spec.loader.exec_module(module)
    made = getattr(module, function)()
    dataset, step = made if isinstance(made, tuple) else (made, None)
    if plan is not None:
        import xttsbench

        dataset, _ = xttsbench.optimize(dataset, plan=plan)
    return dataset, step


def timed(dataset: Any, step: Callable[[Any], Any] | None, seconds: float) -> dict[str, Any]:
    """Whole epochs for so many seconds; of a dataset without an end, so many seconds behind the first LONGEST_S."""
    steps, began, endless = 0, 0.0, False
    first = time.perf_counter()
    while True:
        for batch in dataset:
            if step is not None:
                step(batch)
            now = time.perf_counter()
            if began:
                steps += 1
            elif now - first > LONGEST_S:
                began, endless = now, True
            if endless and now - began > seconds:
                return {"step_s": (now - began) / steps, "steps": steps}
        if began and now - began > seconds:
            return {"step_s": (now - began) / steps, "steps": steps}
        began = began or time.perf_counter()


def digest(dataset: Any) -> dict[str, Any]:
    """Hashes of the first elements in their order, and of the samples of some epochs, whatever their order and batch.

    A sample is a row of all parts of a batch, without zeros at its end, which may be padding. A batch that is too small
    may be dropped, so that a single epoch need not have every sample.
    """
    import numpy as np
    import tensorflow as tf

    in_order: list[str] = []
    samples: set[str] = set()
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        for element in dataset:
            parts = [np.asarray(part) for part in tf.nest.flatten(element)]
            if not epoch and len(in_order) < ELEMENTS:
                in_order.append(_hash([(part.dtype.str, part.shape, part.tobytes()) for part in parts]))
            rows = {part.shape[0] if part.ndim else None for part in parts}
            batched = len(rows) == 1 and None not in rows
            for row in zip(*parts, strict=True) if batched else [parts]:
                samples.add(_hash([np.asarray(part).tobytes().rstrip(b"\0") for part in row]))
            if time.perf_counter() - began > LONGEST_S:
                break
    return {"samples": len(samples), "in_order": _hash(in_order), "any_order": _hash(sorted(samples))}


def _hash(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def script(file: Path, how: str, seconds: float) -> dict[str, Any]:
    """The steps of a script's own loop."""
    stamps: list[float] = []
    warm: list[int] = []  # from which stamp on they count

    def stamp() -> None:
        stamps.append(time.perf_counter())
        if not warm and (len(stamps) > WARM_UP or stamps[-1] - stamps[0] > LONGEST_S):
            warm.append(len(stamps) - 1)
        if warm and stamps[-1] - stamps[warm[0]] > seconds and len(stamps) - warm[0] > WARM_UP / 2:
            raise EnoughError

    if how == "fit":
        from tensorflow import keras

        fit = keras.Model.fit

        class Clock(keras.callbacks.Callback):
            ended = 0  # steps of the epoch; several end at once with steps_per_execution

            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.ended = 0

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                while self.ended <= batch:
                    self.ended += 1
                    stamp()

        keras.Model.fit = lambda self, *args, **named: fit(self, *args, callbacks=[Clock()], **named)
        on_batch = keras.Model.train_on_batch
        keras.Model.train_on_batch = lambda self, *args, **named: (on_batch(self, *args, **named), stamp())[0]
    else:
        import tensorflow as tf
        from tensorflow.python.distribute import input_lib

        def clocked(iterate: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
            def elements(self: Any) -> Iterator[Any]:
                for element in iterate(self):
                    stamp()
                    yield element

            def iterator(self: Any) -> Iterator[Any]:
                within = sys._getframe(1).f_globals["__name__"].startswith("tensorflow.")  # of a distributed one
                return iterate(self) if within else elements(self)

            return iterator

        for kind in (tf.data.Dataset, input_lib.DistributedDataset):
            kind.__iter__ = clocked(kind.__iter__)
    sys.argv = [str(file)]
    try:
        runpy.run_path(str(file), run_name="__main__")
    except EnoughError:
        pass
    except Exception as error:  # published for another version: its steps count all the same
        if len(stamps) < 3 * WARM_UP:
            raise
        print(f"{file.name} ended after {len(stamps)} steps: {error}", file=sys.stderr)
    counted = stamps[warm[0] :]
    return {"step_s": (counted[-1] - counted[0]) / (len(counted) - 1), "steps": len(counted) - 1}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("function", nargs="?")
    parser.add_argument("--step-ms", type=float, help="wait so long for each batch, in place of a step")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--script", choices=("loop", "fit"))
    parser.add_argument("--digest", action="store_true")
    options = parser.parse_args()
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the code of others prints
    if options.script:
        found = script(options.file, options.script, options.seconds)
    else:
        import numpy as np
        import tensorflow as tf

        random.seed(0)
        np.random.seed(0)
        tf.random.set_seed(0)
        dataset, step = loaded(options.file, options.function, options.plan)
        if options.step_ms:
            wait_s = options.step_ms / 1e3
            step = lambda batch: time.sleep(wait_s)  # noqa: E731
        found = digest(dataset) if options.digest else timed(dataset, step, options.seconds)
    print(json.dumps(found), file=told, flush=True)
    os._exit(0)  # a Python function that is still called by tf.data can hold up the interpreter's end


if __name__ == "__main__":
    main()
