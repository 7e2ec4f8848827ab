"""``xttsbench data``: data sets in LJSpeech format, made or imported, and their feature caches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xttsbench.cli.data_cache import precompute, verify

if TYPE_CHECKING:
    from xttsbench.cli.output import Watched

app = typer.Typer(
    name="data",
    no_args_is_help=True,
    help="Data sets in LJSpeech format, and their feature caches.",
)

Json = Annotated[bool, typer.Option("--json", help="The record as JSON on standard output.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Workers = Annotated[
    int | None, typer.Option(min=1, max=256, help="Processes (default: the allowed cores).", show_default=False)
]


@app.command("make")
def make(
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where (default: the user's cache, where every command finds it).", show_default=False
        ),
    ] = None,
    utterances: Annotated[int, typer.Option(help="Number of clips.")] = 256,
    min_s: Annotated[float, typer.Option(help="Shortest clip in seconds.")] = 1.0,
    max_s: Annotated[float, typer.Option(help="Longest clip in seconds.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed; the same one gives the same bytes.")] = 0,
    speakers: Annotated[int, typer.Option(help="Speakers who take turns.")] = 4,
    workers: Workers = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make formant-synthesised speech of several speakers: real WAV files, without a download.

    Without --out and other options this is the set that every command without --data uses.

    Example:  xttsbench data make --utterances 64 --max-s 4 --seed 1 --out speech
    """
    from xttsbench.xtts.data.directories import made_data
    from xttsbench.xtts.data.make import make_data

    directory = made_data(utterances, seed, min_s, max_s, speakers) if out is None else out
    with _watched() as progress:
        record = make_data(
            directory, utterances, seed, min_s, max_s, speakers=speakers, workers=workers, progress=progress
        )
    words = [
        _count(record.clips, "clip"),
        _duration(record.seconds),
        _count(record.speakers, "speaker"),
        f"{record.sample_rate_hz} Hz",
        _size(record.bytes),
        f"seed {record.seed}",
    ]
    _show(directory, record.model_dump(), [", ".join(words)], as_json=as_json)


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Directory of the data set.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where; empty, or made.")],
    metadata: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The listing, here or in SOURCE (default metadata.csv or metadata_train.csv).",
            show_default=False,
        ),
    ] = None,
    eval_metadata: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The listing of held-out clips (default: metadata_eval.csv where SOURCE has it and --metadata is not "
            "given).",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[int, typer.Option(metavar="HZ", help="Sample rate wanted.")] = 22_050,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out what cannot be used, and list it.")
    ] = False,
    workers: Workers = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Bring another data set into canonical form: LJSpeech's layout, mono, 16-bit PCM, one rate.

    Listings are id|text|normalised text (LJSpeech), audio_file|text|speaker_name (Coqui, with or without that header),
    or tables with commas or tabs and a header that names the columns.

    Sound is WAV of 8 to 32 bits or floating point, of any rate and number of channels.

    Example:  xttsbench data import corpus --metadata metadata_train.csv --eval-metadata metadata_eval.csv --out speech
    """
    from xttsbench.xtts.data.importing import import_data

    with _watched() as progress:
        record = import_data(
            source,
            out,
            metadata=metadata,
            eval_metadata=eval_metadata,
            sample_rate_hz=rate,
            skip_unreadable=skip_unreadable,
            workers=workers,
            progress=progress,
        )
    held_out = "" if record.eval_clips is None else f" ({record.eval_clips} held out)"
    words = [
        _count(record.clips, "clip") + held_out,
        _duration(record.seconds),
        _count(record.speakers, "speaker"),
        f"{record.sample_rate_hz} Hz",
        _size(record.bytes),
    ]
    lines = [", ".join(words)]
    lines += [f"  {_count(clips, 'clip')} from {form}" for form, clips in record.forms.items()]
    if record.clipped:
        lines.append(f"  {_count(record.clipped, 'clip')} cut to -1..1, the loudest from {record.peak:.3g}")
    if record.skipped:
        lines.append(f"  {_count(len(record.skipped), 'clip')} left out:")
        lines += [f"    {skipped.where}: {skipped.reason}" for skipped in record.skipped[:20]]
        if len(record.skipped) > 20:
            lines.append(f"    and {len(record.skipped) - 20} more, in {out / 'import.json'}")
    _show(out, record.model_dump(), lines, as_json=as_json)


app.command("precompute")(precompute)
app.command("verify")(verify)


@contextmanager
def _watched() -> Iterator[Watched]:
    """Show progress; and say, where the user breaks off, that nothing half-made is left."""
    from xttsbench.cli.output import Watched, say

    try:
        with Watched() as progress:
            yield progress
    except KeyboardInterrupt:
        say("Interrupted; nothing half-made was left behind.")
        raise typer.Exit(130) from None


def _show(directory: Path, record: dict[str, Any], lines: list[str], *, as_json: bool) -> None:
    """Print the directory and what is in it, or both as JSON."""
    import json

    if as_json:
        typer.echo(json.dumps({"directory": str(directory.resolve()), **record}, indent=2, ensure_ascii=False))
        return
    for line in (str(directory), *lines):
        typer.echo("".join(c if c.isprintable() else repr(c)[1:-1] for c in line))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def _size(size_bytes: int) -> str:
    from xttsbench.xtts.data.drafts import megabytes

    return megabytes(size_bytes)
