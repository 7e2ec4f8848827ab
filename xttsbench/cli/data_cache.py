"""``xttsbench data precompute`` and ``xttsbench data verify``: feature caches, made and checked."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from xttsbench.cli.output import Watched
    from xttsbench.xtts.audio.features import FeatureSettings
    from xttsbench.xtts.data.precompute import Made
    from xttsbench.xtts.data.usable import Problem
    from xttsbench.xtts.data.verify import Verification

Data = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The data set (default: the set made by 'data make').", show_default=False),
]
Recipe = Annotated[
    str, typer.Option(metavar="NAME", help="Training recipe whose feature settings hold: a name, or a YAML file.")
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="ROOT", help="Where caches are kept (default: the user's cache).", show_default=False),
]
Workers = Annotated[
    int | None, typer.Option(min=1, max=256, help="Processes (default: the allowed cores).", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="The record as JSON on standard output.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]

GATE: Final = 1
UNUSABLE: Final = 5


def precompute(
    data: Data = None,
    recipe: Recipe = "tiny",
    out: Out = None,
    workers: Workers = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make the feature cache of a data set: log-mels of every clip, one by one and packed; keeps what is good.

    Example:  xttsbench data precompute --data speech
    """
    features = _features(recipe)
    with _watched() as progress:
        from xttsbench.xtts.data.precompute import make_cache
        from xttsbench.xtts.data.speech_data import read_speech_data

        directory = _directory(data, progress)
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
        f"{minutes:,.1f} min of sound, {_size(2 * 4 * features.n_mels * frames)}"
    )


def verify(
    data: Data = None,
    recipe: Recipe = "tiny",
    out: Out = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Make again what is wrong in the cache; never touches WAV files or metadata.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Make the features of all clips again and compare, not of a sample of 64.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Decides which clips are in the sample.")] = 0,
    workers: Workers = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check a data set and its feature cache, and list what is wrong with which clip, and what to do about it.

    Exit code 0 where nothing is wrong (or all of it was mended), 1 where problems remain, 5 where no clip can be used.

    Example:  xttsbench data verify --data speech --fix
    """
    features = _features(recipe)
    with _watched() as progress:
        from xttsbench.xtts.data.verify import mend
        from xttsbench.xtts.data.verify import verify as look

        directory = _directory(data, progress)

        def looked() -> Verification:
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
        made = mend(found, features, out, workers=workers, progress=progress) if fix else None
        left = looked() if made else found
    fixed = [problem for problem in found.problems if problem not in left.problems]
    code = UNUSABLE if left.data is None else GATE if left.problems else 0
    if as_json:
        _print_json(_verified(left, fixed, made))
    else:
        _print_verification(left, fixed, made)
    raise typer.Exit(code)


def _features(recipe: str) -> FeatureSettings:
    from xttsbench.shipped import shipped
    from xttsbench.xtts.recipe import load_recipe

    is_file = "/" in recipe or recipe.endswith((".yaml", ".yml"))
    return load_recipe(Path(recipe) if is_file else shipped("training", recipe)).features


def _directory(data: Path | None, progress: Watched) -> Path:
    from xttsbench.xtts.data.make import ensure_default_data

    return ensure_default_data(progress) if data is None else data


def _fix_command(data: Path | None, recipe: str, out: Path | None) -> str:
    words = ["xttsbench", "data", "verify", "--fix"]
    words += [] if data is None else ["--data", str(data)]
    words += [] if recipe == "tiny" else ["--recipe", recipe]
    words += [] if out is None else ["--out", str(out)]
    return shlex.join(words)


@contextmanager
def _watched() -> Iterator[Watched]:
    """Show progress; and say, where the user breaks off, what becomes of the work."""
    from xttsbench.cli.output import Watched, say

    try:
        with Watched() as progress:
            yield progress
    except KeyboardInterrupt:
        say("Interrupted; what was made is kept, and the same command goes on from there.")
        raise typer.Exit(130) from None


def _print_verification(left: Verification, fixed: list[Problem], made: Made | None) -> None:
    good = 0 if left.data is None else len(left.data)
    _print(f"{left.directory}: {good} of {_count(left.clips, 'clip')} can be used")
    _print(f"{left.cache}: {_count(left.compared, 'clip')} compared with features made again")
    if made is not None:
        _print(f"mended, {len(fixed)}: {_count(made.made, 'clip')} made again, {made.kept} kept")
        for problem in fixed:
            _print(f"  {problem.rule}: {_line(problem)}")
    remedies: dict[tuple[str, str], list[Problem]] = {}
    for problem in left.problems:
        remedies.setdefault((problem.rule, problem.remedy), []).append(problem)
    for (rule, remedy), problems in remedies.items():
        _print(f"{rule}, {len(problems)}: {remedy}")
        for problem in problems:
            _print(f"  {_line(problem)}")
    _print(_count(len(left.problems), "problem") if left.problems else "nothing is wrong")


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


def _print_json(record: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(record, indent=2, ensure_ascii=False))


def _print(line: str) -> None:
    typer.echo("".join(c if c.isprintable() else repr(c)[1:-1] for c in line))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _size(size_bytes: int) -> str:
    from xttsbench.xtts.data.drafts import megabytes

    return megabytes(size_bytes)
