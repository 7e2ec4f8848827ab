"""One process that is asked for the same again and again: a line on standard input is a piece, one of JSON the answer.

``python lasting.py named`` diagnoses a target by its name, as a process without TensorFlow; ``live`` has TensorFlow,
and diagnoses a dataset and step of its own, goes through a watched dataset, and fits a Keras model that is watched.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from traces import held

import xttsbench

TINY = Path(__file__).with_name("tiny.py")


def named() -> Callable[[Path], None]:
    def piece(out: Path) -> None:
        xttsbench.diagnose(f"{TINY}:small", budget_s=10, verify=False, out=out)

    return piece


def live() -> Callable[[Path], None]:
    import keras
    import numpy as np
    import tiny

    from xttsbench.keras import Watch

    dataset, step = tiny.small()
    looped = xttsbench.watched(dataset.take(50), out=Path("watched").absolute(), quiet=True)
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    rows = np.ones([64, 8], np.float32)

    def piece(out: Path) -> None:
        xttsbench.diagnose((dataset, step), budget_s=10, out=out)
        for batch in looped:
            step(batch)
        looped.finish()
        model.fit(rows, rows[:, :1], batch_size=8, verbose=0, callbacks=[Watch(quiet=True)])

    return piece


def main() -> None:
    piece = {"named": named, "live": live}[sys.argv[1]]()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        out = Path(line.strip())
        piece(out)
        shutil.rmtree(out)
        gc.collect()
        print(json.dumps(held(os.getpid())), file=answers, flush=True)


main()
