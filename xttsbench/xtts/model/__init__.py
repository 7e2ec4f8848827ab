"""The speech model: latents of a reference, text and mel frames in one sequence, and its training step."""

from xttsbench.xtts.model.gradients import CompiledGradients, clip, losses_and_gradients, squared_norm
from xttsbench.xtts.model.layers import positions
from xttsbench.xtts.model.loss import Losses, losses
from xttsbench.xtts.model.precision import PRECISIONS, use_precision
from xttsbench.xtts.model.speech_model import Prediction, SpeechModel, build, scale_mel, unscale_mel
from xttsbench.xtts.model.train_step import MODES, TrainStep, make_train_step, open_spec

__all__ = [
    "MODES",
    "PRECISIONS",
    "CompiledGradients",
    "Losses",
    "Prediction",
    "SpeechModel",
    "TrainStep",
    "build",
    "clip",
    "losses",
    "losses_and_gradients",
    "make_train_step",
    "open_spec",
    "positions",
    "scale_mel",
    "squared_norm",
    "unscale_mel",
    "use_precision",
]
