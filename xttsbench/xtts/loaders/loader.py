"""The frame of all loaders: planned batches in, a ``tf.data`` dataset out, the same from each of them.

An element is a dict of one batch of ``b`` rows:

- ``id``: int32 ``[b]``, number of the clip;
- ``text``: int32 ``[b, characters]``, padded with 0, and ``text_length``: int32 ``[b]``;
- ``mel``: float32 ``[b, frames, n_mels]``, log-mels padded with the floor's logarithm;
- ``mel_length``: int32 ``[b]``;
- ``reference``: float32 ``[b, reference_frames, n_mels]``, cut from another clip of the same speaker, or from the same
  clip where the speaker has no other, and padded likewise;
- ``reference_start``: int32 ``[b]``, first frame of the reference in the target where it is the same clip, else -1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pkgutil import resolve_name
from typing import Final

import tensorflow as tf

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.xtts.data.batches import Batch
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.planned import Planned, planned
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings
from xttsbench.xtts.loaders import LOADERS
from xttsbench.xtts.loaders.packed import Arrays
from xttsbench.xtts.loaders.rows import row_batches, signature

# The three ways in which a loader's sentence comes: from Python, from an assertion among the ops, and from `ReadFile`,
# which names the file and nothing more.
_RAISED: Final = re.compile(r"(CacheFileError|WavError|InvalidInputError|WorkerDiedError): (.+)")
_ASSERTED: Final = re.compile(r"assertion failed: \[(.*?)\]\n", re.DOTALL)
_UNREADABLE: Final = re.compile(r": ([^:\n]*\.(npy|wav)); (.*?)(?:\n|$)")
_REMEDIES: Final = {"npy": "run 'xttsbench data precompute'", "wav": "put the file back, or take its line out"}


def make_dataset(
    name: str,
    data: SpeechData,
    cache: FeatureCache | None,
    batches: Sequence[Batch],
    features: FeatureSettings,
    *,
    keep: bool = False,
    prefetch: int = -1,
    device_prefetch: int = 0,
    device: str | None = None,
    workers: int = -1,
    threads: int = 0,
    deterministic: bool = True,
    repeat: bool = True,
    moved: Callable[[tf.data.Dataset], tf.data.Dataset] | None = None,
) -> tf.data.Dataset:
    """Return the dataset of planned batches, one element a batch, made by a loader.

    Args:
        name: one of :data:`LOADERS`.
        data: the clips.
        cache: their features, for :data:`CACHED`; the others do not look at it.
        batches: from :func:`xttsbench.xtts.data.batches.plan`, in their order; of several epochs if need be.
        features: what determines the features; a cache must be of the same.
        keep: keep the features of each clip in memory from their first use on, for :data:`KEEPING`: at most four bytes
            for each mel of each frame of the data set. The planned batches change from epoch to epoch and their clips
            do not, so it is those that are kept. The batches are the same bits; the references of ``tf_wav``, cut from
            what is kept and else computed from fewer frames, may differ in their rounding.
        prefetch: batches made ahead; -1 lets tf.data decide, 0 makes none.
        device_prefetch: batches copied to a GPU ahead, beside those. Where the CPU is the only device there is nothing
            to copy, and they are made ahead.
        device: the GPU that they are copied to; by default the first.
        workers: clips (of ``packed`` batches) loaded in parallel; -1 lets tf.data decide, 0 loads one after the other.
        threads: threads of a private pool for this dataset; 0 uses the common one.
        deterministic: keep the order where a later batch of ``packed`` is ready first; clips always keep theirs.
        repeat: begin again after the last batch.
        moved: a change of the dataset before batches are copied to a GPU; what it returns yields the same.

    Raises:
        CacheFileError: the packed file is gone or not what the index says.
    """
    if data.sharded is not None and name != "packed":
        raise InvalidInputError(
            f"{data.directory}: has features in shards alone, and the loader {name} reads a file for each clip; "
            "take the loader packed (--set loader=packed)"
        )
    table = planned(data, batches, features)
    make = resolve_name(LOADERS[name])
    if name == "packed":
        dataset = tf.data.Dataset.range(len(table))
        if repeat:
            dataset = dataset.repeat()
        dataset = dataset.map(
            arrays_of(table, make(table, data, cache, features)),
            num_parallel_calls=workers or None,
            deterministic=deterministic if workers else None,
        )
    else:
        load = make(table, data, cache, features, keep=keep)
        dataset = row_batches(table, load, repeat=repeat, workers=workers)
    if prefetch:
        dataset = dataset.prefetch(prefetch)
    options = tf.data.Options()
    options.deterministic = deterministic
    # TensorFlow's default rewrites would bring back what was not wanted.
    if not workers:
        options.experimental_optimization.map_parallelization = False
    if not prefetch:
        options.experimental_optimization.inject_prefetch = False
    if threads:
        options.threading.private_threadpool_size = threads
    dataset = dataset.with_options(options)
    if moved is not None:
        dataset = moved(dataset)
    gpus = tf.config.list_logical_devices("GPU") if device_prefetch else []
    if gpus:  # the last of all, for what follows it would run on the CPU again
        return dataset.apply(tf.data.experimental.prefetch_to_device(device or gpus[0].name, device_prefetch))
    return dataset.prefetch(device_prefetch) if device_prefetch else dataset


def arrays_of(planned: Planned, make: Callable[[int], Arrays]) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Return the function that gives a batch from its number, an int64 scalar, made by ``make`` inside tf.data.

    One ``tf.numpy_function`` for the whole batch: a call costs some 0.2 ms for the way into Python and back, so a call
    per clip would cost more than the loader's work.
    """
    specs = signature(planned)

    def load_batch(number: int) -> Arrays:
        """Make a batch; runs in Python, inside tf.data."""
        return make(int(number))

    def batch(number: tf.Tensor) -> dict[str, tf.Tensor]:
        mel, reference, numbers = tf.numpy_function(load_batch, [number], [tf.float32, tf.float32, tf.int32])
        numbers.set_shape([None])
        size = tf.shape(mel)[0]
        ids, text_length, mel_length, start, text = tf.split(numbers, tf.stack([size] * 4 + [-1]), num=5)
        made = {
            "id": ids,
            "text": tf.reshape(text, tf.stack([size, -1])),
            "text_length": text_length,
            "mel": mel,
            "mel_length": mel_length,
            "reference": reference,
            "reference_start": start,
        }
        for key, spec in specs.items():
            made[key].set_shape(spec.shape)
        return made

    return batch


@contextmanager
def explained() -> Iterator[None]:
    """Say what a loader found wrong in its own sentence; to be held where batches are taken from a loader's dataset.

    Raises:
        InvalidInputError: a clip or a feature cache cannot be read any more; its text names the file and what to do.
        XttsbenchError: a process that makes batches died, for which the data cannot be blamed.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if (sentence := _sentence(error.message)) is None:
            raise
        raise sentence from error


def _sentence(message: str) -> XttsbenchError | None:
    if found := _RAISED.search(message):
        return (XttsbenchError if found[1].endswith("DiedError") else InvalidInputError)(found[2])
    if found := _ASSERTED.search(message):
        return InvalidInputError(found[1].replace("\\'", "'").replace('\\"', '"'))
    if found := _UNREADABLE.search(message):
        return InvalidInputError(f"{found[1]}: cannot be read ({found[3]}); {_REMEDIES[found[2]]}")
    return None
