"""A session of training, in a process of its own that may be killed: ``resumed_run.py DATA DIRECTORY REPLICAS MODE``.

Lines on standard output: the loss of each step that ended, and what the loop returned.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

from xttsbench.shipped import shipped
from xttsbench.training.checkpoints import Checkpoints
from xttsbench.training.course import Origin
from xttsbench.training.loop import Action, Run, train
from xttsbench.training.state import TrainingState
from xttsbench.training.step import Replicas, TrainingStep, Workers, make_strategy
from xttsbench.training.stream import Loading, batch_stream
from xttsbench.xtts.data.speech_data import read_speech_data
from xttsbench.xtts.recipe import Recipe, ScheduleSettings, TrainingSettings, load_recipe

SEED = 3
STEPS = 14


def recipe() -> Recipe:
    """The smallest model with all of its parts; dropout, averages, accumulation and a schedule are on."""
    tiny = load_recipe(shipped("training", "tiny"))
    sizes = {"d_model": 8, "heads": 2, "feed_forward": 8, "prenet": (8,), "latents": 2, "conditioning_layers": 0}
    sizes |= {"layers": 1, "guided_layers": 1, "guided_heads": 1}
    batches = {"batch_size": 1, "frame_edges": (64, 96), "text_edges": (8, 16), "reference_frames": 32}
    training = TrainingSettings(
        steps=STEPS,
        accumulation=2,
        ema_decay=0.9,
        log_every=4,
        checkpoint_every=2,
        schedule=ScheduleSettings(kind="noam", warmup_steps=3),
    )
    return tiny.model_copy(
        update={
            "features": tiny.features.model_copy(update={"n_mels": 8}),
            "model": tiny.model.model_copy(update=sizes),
            "batches": tiny.batches.model_copy(update=batches),
            "training": training,
        }
    )


class Line(Action):
    """Says each step."""

    def stepped(self, result: Any) -> None:
        print(f"{float(result.total)!r}", flush=True)


def session(data_directory: str, directory: str, replicas: int, mode: str) -> None:
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    data = read_speech_data(Path(data_directory), sample_rate_hz=22_050, split="all")
    chosen = recipe()
    strategy = make_strategy("mirrored" if replicas > 1 else "one")
    places = Replicas(strategy)
    state = TrainingState(chosen, strategy, "float32", SEED)
    ended = train(
        Run(
            recipe=chosen,
            origin=Origin.of(chosen, data, replicas=places.count, precision="float32", seed=SEED),
            state=state,
            step=TrainingStep(state, chosen, places, mode=mode, seed=SEED),
            batches=lambda position: batch_stream(
                data, None, chosen, Loading(loader="numpy_wav"), places, seed=SEED, position=position
            ),
            checkpoints=Checkpoints(Path(directory) / "checkpoints", 2),
            workers=Workers(strategy, places),
            actions=[Line()],
        )
    )
    print(ended.model_dump_json(), flush=True)


if __name__ == "__main__":
    session(*sys.argv[1:3], int(sys.argv[3]), sys.argv[4])
