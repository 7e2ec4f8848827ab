"""The speech model: latents of a reference, text and mel frames in one sequence, and its training step."""

from xttsbench.xtts.model.gradients import CompiledGradients, clip, losses_and_gradients
from xttsbench.xtts.model.layers import positions
from xttsbench.xtts.model.loss import Losses, losses
from xttsbench.xtts.model.speech_model import Prediction, SpeechModel, build, scale_mel, unscale_mel
from xttsbench.xtts.model.train_step import MODES, PRECISIONS, TrainStep, make_train_step

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
    "positions",
    "scale_mel",
    "unscale_mel",
]
