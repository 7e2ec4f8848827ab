"""A process of several replicas: ``child.py DIRECTORY KIND LOGICAL_CPUS [xla]``; writes what its trainers did there."""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

DIRECTORY, KIND, CPUS = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * CPUS
)
shared = runpy.run_path(str(Path(__file__).with_name("conftest.py")))
noise_batch = shared["noise_batch"]


def save(name: str, said: np.ndarray, arrays: dict[str, np.ndarray]) -> None:
    np.savez(DIRECTORY / f"{name}.npz", said=said, **arrays)


def a_number_that_is_none(trainer: Any) -> None:
    save("before", np.array([]), trainer.arrays())
    spoilt = noise_batch(3)
    spoilt["mel"][-1, 0] = np.nan  # a frame of the last replica
    save("after", np.array([trainer(spoilt, 3)]), trainer.arrays())
    said = [trainer(noise_batch(4), 4)]
    weights = [np.concatenate([np.ravel(w) for w in replica.weights]) for replica in trainer.state.replicas]
    save("next", np.array(said), {f"replica_{place}": values for place, values in enumerate(weights)})


def stopped_and_resumed(trainer: Any) -> None:
    kept = trainer.state.weights(), trainer.state.optimizer()
    for name, start in (("whole", kept), ("elsewhere", trainer.start), ("resumed", kept)):
        trainer.state.restore(*start)
        save(name, np.array([trainer(noise_batch(5), 5)]), trainer.arrays())


if KIND == "multi_worker":
    trainer = shared["Trainer"](kind=KIND)
    DIRECTORY /= str(trainer.replicas.first_local)
    DIRECTORY.mkdir()
    said, weights = shared["three_steps"](trainer)
    save("done", said, weights | {"is_chief": np.array(trainer.replicas.is_chief)})
    while len(list(DIRECTORY.parent.glob("*/done.npz"))) < 2:  # who leaves ends a step that the other is still in
        time.sleep(0.01)
else:
    cases = (("xla", 1),) if "xla" in sys.argv[4:] else (("graph", 4), ("graph", 1))
    for mode, accumulation in cases:
        trainer = shared["Trainer"](kind=KIND, mode=mode, accumulation=accumulation, ema_decay=0.9)
        save(f"{mode}_{accumulation}", *shared["three_steps"](trainer))
    if "xla" not in sys.argv[4:]:
        a_number_that_is_none(trainer)
        stopped_and_resumed(trainer)
