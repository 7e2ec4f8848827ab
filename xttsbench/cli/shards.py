"""``xttsbench data shard`` and ``attach``: features in shards, and shards that stay where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xttsbench.cli.data import KEPT, DataSet, Recipe, count, data_directory, features_of, show, watched
from xttsbench.cli.options import AsJson, Debug, Workers

Directory = Annotated[Path, typer.Option(metavar="DIR", help="Directory to write: empty, or not there yet.")]


def shard(
    out: Directory,
    data: DataSet = None,
    recipe: Recipe = "tiny",
    shard_mb: Annotated[int, typer.Option(min=1, help="Size of a shard at most, in MiB.")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="Decides which clips are held out, as the seed of a training.")] = 0,
    workers: Workers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write a data set's features in shards with an index: a data set of its own, for the loader packed.

    The bytes are the same however many processes write. Broken off, the same command keeps the shards that are there.

    Example:  xttsbench data shard --data speech --out speech-shards
    """
    settings = features_of(recipe)
    with watched(KEPT) as progress:
        from xttsbench.xtts.data.precompute import make_cache
        from xttsbench.xtts.data.shards import make_shards
        from xttsbench.xtts.data.speech_data import read_speech_data

        directory = data_directory(data, progress)
        clips = read_speech_data(directory, sample_rate_hz=settings.sample_rate_hz, split="all", seed=seed)
        cache = make_cache(clips, settings, workers=workers, progress=progress).cache
        made = make_shards(
            clips, cache, out, seed=seed, shard_bytes=shard_mb * 2**20, workers=workers, progress=progress
        )
    manifest, shards = made.manifest, len(made.manifest.frames)
    record = {"clips": manifest.clips, "shards": shards, "made": made.made, "kept": made.kept}
    line = f"{count(manifest.clips, 'clip')} in {count(shards, 'shard')}; {made.made} written, {made.kept} kept"
    show(out, record, [line], as_json=as_json)


def attach(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the shards are, such as s3://bucket/speech.")],
    out: Directory,
    in_flight: Annotated[int, typer.Option(min=1, max=1024, help="Requests at once, at most, for batches.")] = 32,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Fetch the index of a sharded data set, whose shards are then read over the network as batches need them.

    A bucket takes the extra [remote]; its endpoint and keys are those of the usual variables (AWS_ENDPOINT_URL, ...).

    Example:  xttsbench data attach s3://bucket/speech --out speech
    """
    with watched(KEPT) as progress:
        from xttsbench.xtts.data.shards import attach as fetched

        manifest = fetched(url, out, in_flight=in_flight, progress=progress)
    record = {"clips": manifest.clips, "shards": len(manifest.frames), "url": url, "in_flight": in_flight}
    line = f"{count(manifest.clips, 'clip')}; read from {url}, {in_flight} requests at once"
    show(out, record, [line], as_json=as_json)
