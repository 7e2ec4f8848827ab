"""``xttsbench data``: data sets in LJSpeech format, made or imported, and their feature caches."""

from __future__ import annotations

import json
import shlex
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from xttsbench.cli.options import AsJson, Debug, Workers
from xttsbench.cli.output import Watched, printable, say
from xttsbench.errors import UsageError, XttsbenchError
from xttsbench.files import megabytes

if TYPE_CHECKING:
    from xttsbench.xtts.data.importing import ImportedData
    from xttsbench.xtts.data.make import MadeData
    from xttsbench.xtts.data.precompute import Made
    from xttsbench.xtts.data.speech_data import Problem
    from xttsbench.xtts.data.verification import Verification
    from xttsbench.xtts.features import FeatureSettings

app = typer.Typer(
    name="data",
    no_args_is_help=True,
    help="Data sets in LJSpeech format, and their feature caches.",
)

DataSet = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The data set (default: that of 'data make' without options).")
]
Recipe = Annotated[
    str, typer.Option(metavar="NAME", help="Training recipe whose feature settings hold: a name, or a YAML file.")
]
Caches = Annotated[Path | None, typer.Option(metavar="ROOT", help="Where caches are kept (default: the user's cache).")]

GATE: Final = 1
UNUSABLE: Final = 5
KEPT: Final = "what was made is kept, and the same command goes on from there."


@app.command("make")
def make(
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory to write (default: one in the user's cache)."),
    ] = None,
    utterances: Annotated[int, typer.Option(help="Number of clips.")] = 256,
    min_s: Annotated[float, typer.Option(help="Shortest clip in seconds.")] = 1.0,
    max_s: Annotated[float, typer.Option(help="Longest clip in seconds.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed; the same one gives the same bytes.")] = 0,
    speakers: Annotated[int, typer.Option(help="Number of speakers.")] = 4,
    workers: Workers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Make formant-synthesised speech of several speakers: real WAV files, without a download.

    Without options this is the set that commands without --data use.

    Example:  xttsbench data make --utterances 64 --max-s 4 --seed 1 --out speech
    """
    from xttsbench.xtts.data.make import made_data, make_data

    directory = made_data(utterances, seed, min_s, max_s, speakers) if out is None else out
    with watched("nothing half-made was left behind.") as progress:
        record = make_data(
            directory, utterances, seed, min_s, max_s, speakers=speakers, workers=workers, progress=progress
        )
    lines = [f"{_described(record, count(record.clips, 'clip'))}, seed {record.seed}"]
    show(directory, record.model_dump(), lines, as_json=as_json)


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Directory of the data set.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory to write: empty, or one that is not there yet.")],
    metadata: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The listing, here or in SOURCE (default metadata.csv or metadata_train.csv)."
        ),
    ] = None,
    eval_metadata: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The listing of held-out clips (default: metadata_eval.csv where SOURCE has it and --metadata is not "
            "given).",
        ),
    ] = None,
    rate: Annotated[int, typer.Option(metavar="HZ", help="Sample rate wanted.")] = 22_050,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out what cannot be used, and list it.")
    ] = False,
    workers: Workers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Bring another data set into canonical form: LJSpeech's layout, mono, 16-bit PCM, one rate.

    Listings are id|text|normalised text (LJSpeech) or audio_file|text|speaker_name (Coqui, with its header or not).

    Sound is WAV (8 to 32 bits or floating point), AIFF, FLAC, Ogg or MP3, of 1 to 768 kHz and up to 1,024 channels.

    Example:  xttsbench data import corpus --metadata metadata_train.csv --eval-metadata metadata_eval.csv --out clips
    """
    from xttsbench.xtts.data.importing import import_data

    with watched("nothing half-made was left behind.") as progress:
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
    lines = [_described(record, count(record.clips, "clip") + held_out)]
    lines += [f"  {count(clips, 'clip')} from {form}" for form, clips in record.forms.items()]
    if record.clipped:
        lines.append(f"  {count(record.clipped, 'clip')} cut to -1..1, the loudest from {record.peak:.3g}")
    if record.skipped:
        lines.append(f"  {count(len(record.skipped), 'clip')} left out:")
        lines += [f"    {skipped.where}: {skipped.reason}" for skipped in record.skipped[:20]]
        if len(record.skipped) > 20:
            lines.append(f"    and {len(record.skipped) - 20} more, in {out / 'import.json'}")
    show(out, record.model_dump(), lines, as_json=as_json)


@app.command("precompute")
def precompute(
    data: DataSet = None,
    recipe: Recipe = "tiny",
    out: Caches = None,
    workers: Workers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Make the feature cache of a data set: log-mels of every clip, one by one and packed; keeps what is good.

    Example:  xttsbench data precompute --data speech
    """
    features = features_of(recipe)
    with watched(KEPT) as progress:
        from xttsbench.xtts.data.precompute import make_cache
        from xttsbench.xtts.data.speech_data import read_speech_data

        directory = data_directory(data, progress)
        clips = read_speech_data(directory, sample_rate_hz=features.sample_rate_hz, split="all")
        started_s = time.monotonic()
        made = make_cache(clips, features, out, workers=workers, progress=progress)
        duration_s = time.monotonic() - started_s
    if as_json:
        _print_json(_made(made) | {"data": str(directory.resolve()), "duration_s": round(duration_s, 3)})
        return
    frames = int(made.cache.frames.sum())
    minutes = frames * features.hop_samples / features.sample_rate_hz / 60
    _print(str(made.cache.directory))
    _print(
        f"{made.made} of {len(clips)} clips made in {duration_s:.1f} s, {made.kept} kept; "
        f"{minutes:,.1f} min of sound, {megabytes(2 * 4 * features.n_mels * frames)}"
    )


@app.command("verify")
def verify(
    data: DataSet = None,
    recipe: Recipe = "tiny",
    out: Caches = None,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Make a cache anew in which something is wrong, and keep the old one in a folder beside it, where no "
            "training that runs finds it; never touches WAV files or metadata.",
        ),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Make the features of all clips again and compare, not of a sample of 64.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Decides which clips are in the sample.")] = 0,
    workers: Workers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Check a data set and its feature cache, and list what is wrong with which clip, and what to do about it.

    Of a data set in shards every file is hashed, wherever it is.

    Exit code 0 where nothing is wrong (or all of it was mended), 1 where problems remain or cannot be mended, 2 for
    wrong usage, 5 where no clip can be used or the directory is no data set.

    Example:  xttsbench data verify --data speech --fix
    """
    features = features_of(recipe)
    with watched(KEPT) as progress:
        from xttsbench.xtts.data.precompute import mend
        from xttsbench.xtts.data.shard_index import is_sharded
        from xttsbench.xtts.data.shards import verify_shards
        from xttsbench.xtts.data.verification import verify as look

        directory = data_directory(data, progress)
        sharded = is_sharded(directory)
        if sharded and fix:
            raise UsageError("--fix: shards are mended by 'xttsbench data shard', which keeps the good ones")

        def looked() -> Verification:
            if sharded:
                return verify_shards(directory, workers=workers, progress=progress)
            return look(
                directory,
                features,
                out,
                everything=everything,
                seed=seed,
                workers=workers,
                progress=progress,
                remedy=f"run '{_fix_command(data, recipe, out)}'",
            )

        found = looked()
        made, failure = None, None
        try:
            made = mend(found, features, out, workers=workers, progress=progress) if fix else None
        except XttsbenchError as error:  # all that is wrong is listed all the same
            failure = str(error)
        left = looked() if made or failure else found
    fixed = [problem for problem in found.problems if problem not in left.problems]
    code = UNUSABLE if left.data is None else GATE if left.problems or failure else 0
    if failure:
        say(f"Could not be mended: {failure}")
    if as_json:
        _print_json(_verified(left, fixed, made))
    else:
        _print_verification(left, fixed, made)
    raise typer.Exit(code)


def _described(record: MadeData | ImportedData, clips: str) -> str:
    seconds, speakers = _duration(record.seconds), count(record.speakers, "speaker")
    return f"{clips}, {seconds}, {speakers}, {record.sample_rate_hz} Hz, {megabytes(record.bytes)}"


def features_of(recipe: str) -> FeatureSettings:
    """Return the feature settings of a training recipe."""
    from xttsbench.shipped import locate
    from xttsbench.xtts.recipe import load_recipe

    return load_recipe(locate("training", recipe)).features


def data_directory(data: Path | None, progress: Watched) -> Path:
    """Return the data set that was named, else the default one, made if need be."""
    from xttsbench.xtts.data.make import ensure_default_data

    return ensure_default_data(progress) if data is None else data


def _fix_command(data: Path | None, recipe: str, out: Path | None) -> str:
    options = {"--data": data, "--recipe": None if recipe == "tiny" else recipe, "--out": out}
    given = (word for option, value in options.items() if value is not None for word in (option, str(value)))
    return shlex.join(["xttsbench", "data", "verify", "--fix", *given])


def _print_verification(left: Verification, fixed: list[Problem], made: Made | None) -> None:
    good = 0 if left.data is None else len(left.data)
    _print(f"{left.directory}: {good} of {count(left.clips, 'clip')} can be used")
    _print(f"{left.cache}: {count(left.compared, 'clip')} compared with features made again")
    if made is not None:
        _print(f"mended, {len(fixed)}: {count(made.made, 'clip')} made again, {made.kept} kept")
        for problem in fixed:
            _print(f"  {problem.rule}: {_line(problem)}")
        if made.replaced is not None:
            _print(f"what was replaced is kept in {made.replaced}")
    remedies: defaultdict[tuple[str, str], list[Problem]] = defaultdict(list)
    for problem in left.problems:
        remedies[problem.rule, problem.remedy].append(problem)
    for (rule, remedy), problems in remedies.items():
        _print(f"{rule}, {len(problems)}: {remedy}")
        for problem in problems:
            _print(f"  {_line(problem)}")
    _print(count(len(left.problems), "problem") if left.problems else "nothing is wrong")


def _line(problem: Problem) -> str:
    return f"{problem.clip}: {problem.what}" if problem.clip else problem.what


def _verified(left: Verification, fixed: list[Problem], made: Made | None) -> dict[str, Any]:
    return {
        "data": str(left.directory.resolve()),
        "cache": str(left.cache),
        "clips": left.clips,
        "usable": 0 if left.data is None else len(left.data),
        "compared": left.compared,
        "made_again": None if made is None else made.made,
        "replaced": None if made is None or made.replaced is None else str(made.replaced),
        "fixed": [problem.model_dump() for problem in fixed],
        "problems": [problem.model_dump() for problem in left.problems],
    }


def _made(made: Made) -> dict[str, Any]:
    return {
        "cache": str(made.cache.directory),
        "clips": made.made + made.kept,
        "made": made.made,
        "kept": made.kept,
        "frames": int(made.cache.frames.sum()),
        "features": made.cache.features.model_dump(),
    }


@contextmanager
def watched(kept: str) -> Iterator[Watched]:
    """Show progress; and say, where the user breaks off, what becomes of the work."""
    try:
        with Watched() as progress:
            yield progress
    except KeyboardInterrupt:
        say(f"Interrupted; {kept}")
        raise typer.Exit(130) from None


def show(directory: Path, record: dict[str, Any], lines: list[str], *, as_json: bool) -> None:
    """Print a directory with lines about it, or both as a record."""
    if as_json:
        _print_json({"directory": str(directory.resolve()), **record})
        return
    for line in (str(directory), *lines):
        _print(line)


def _print_json(record: dict[str, Any]) -> None:
    typer.echo(json.dumps(record, indent=2, ensure_ascii=False))


def _print(line: str) -> None:
    typer.echo(printable(line))


def count(number: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
