"""The speech model: latents of a reference, text and mel frames in one sequence, and its loss and gradients."""

from xttsbench.xtts.model.loss import (
    CompiledGradients,
    Losses,
    batch_counts,
    losses,
    losses_and_gradients,
    squared_norm,
)
from xttsbench.xtts.model.parts import positions
from xttsbench.xtts.model.speech_model import (
    Prediction,
    SpeechModel,
    open_spec,
    scale_mel,
    unscale_mel,
    use_precision,
)

__all__ = [
    "CompiledGradients",
    "Losses",
    "Prediction",
    "SpeechModel",
    "batch_counts",
    "losses",
    "losses_and_gradients",
    "open_spec",
    "positions",
    "scale_mel",
    "squared_norm",
    "unscale_mel",
    "use_precision",
]
