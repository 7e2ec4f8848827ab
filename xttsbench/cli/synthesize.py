"""``xttsbench synthesize``: a text spoken by a trained model, into a WAV file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def synthesize(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say.")],
    checkpoint: Annotated[
        Path, typer.Option(metavar="DIR", help="A run of 'xttsbench train', its checkpoints/, or one of those.")
    ],
    speaker: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A speaker of the run (default: the first).", show_default=False),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(metavar="WAV", help="The voice to speak with, in place of a speaker.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="WAV", help="The file to write.")] = Path("speech.wav"),
    as_json: Annotated[bool, typer.Option("--json", help="The record as JSON on standard output.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Speak a text with a trained model, and write a WAV file (16 bits, through Griffin-Lim).

    Example:  xttsbench synthesize "solifi momun fufon" --checkpoint reports/my-run --speaker low --out soli.wav
    """
    from xttsbench.cli.output import say
    from xttsbench.workflows.synthesize import synthesise

    found = synthesise(checkpoint, text, out=out, speaker=speaker, reference=reference)
    if found.left_out:
        say(f"Warning: left out of the text, for the model does not know them: {' '.join(map(repr, found.left_out))}")
    for note in found.notes:
        say(f"Warning: {note}")
    if not found.stopped:
        say("Warning: the model did not say where the speech ends, so it was cut off; train it longer")
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    voice = f"speaker {found.speaker}" if found.speaker is not None else "the voice of the reference"
    weights = "averaged weights" if found.averaged else "weights"
    typer.echo(f"{out}: {found.seconds:.2f} s, {voice}, {weights} of step {found.step}")
