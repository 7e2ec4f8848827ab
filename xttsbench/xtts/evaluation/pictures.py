"""Pictures of what was spoken: the recorded clip's spectrogram, the model's, and where it looked in the text."""

from __future__ import annotations

from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from xttsbench.xtts.audio.features import Floats


def picture(text: str, recorded: Floats, generated: Floats, attention: Floats | None, frame_s: float) -> bytes:
    """Return a PNG of one clip.

    Args:
        text: what was to be said.
        recorded: log-mels of the recorded clip, ``[frames, n_mels]``.
        generated: those that the model made.
        attention: of a guided head, ``[steps, characters]``, where there is one.
        frame_s: duration of a frame.
    """
    rows = 2 if attention is None else 3
    figure = Figure(figsize=(9, 2.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 1)
    low, high = float(recorded.min()), float(recorded.max())
    for axis, title, mel in ((axes[0], "recorded", recorded), (axes[1], "generated", generated)):
        _image(axis, mel, len(mel) * frame_s, vmin=low, vmax=high)
        axis.set(title=title, ylabel="mel")
    if attention is not None:
        _image(axes[2], attention, len(generated) * frame_s, vmin=0, vmax=float(attention.max()))
        axes[2].set(title="attention of a guided head", ylabel="character")
    axes[-1].set_xlabel("time in s")
    figure.suptitle(text if len(text) <= 100 else f"{text[:99]}…")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def _image(axis: Axes, values: Floats, seconds: float, *, vmin: float, vmax: float) -> None:
    """Draw ``[time, height]`` with time to the right, over so many seconds."""
    axis.imshow(
        values.T,
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        extent=(0, seconds, 0, values.shape[1]),
        vmin=vmin,
        vmax=vmax,
    )
