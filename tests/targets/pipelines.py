"""Pipelines that each have one fault for real, and beside each a healthy one that looks alike.

Waiting is sleep in a ``numpy_function``; computing is matrix products, so that costs are known without files or a GPU.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

ENDLESS = 1_000_000


def _sleeping(seconds):
    def wait(index):
        time.sleep(seconds)
        return np.full([16], float(index), np.float32)

    return lambda index: tf.ensure_shape(tf.numpy_function(wait, [index], tf.float32), [16])


def _light_step():
    weights = tf.Variable(tf.ones([16, 16]))

    @tf.function
    def step(batch):
        weights.assign_add(1e-6 * tf.matmul(batch, batch, transpose_a=True))
        return tf.reduce_sum(weights)

    return step


def _pool(dataset, threads):
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    return dataset.with_options(options)


def _products(index, times=6):
    """About 2 ms of one processor, the same for the same element."""
    values = tf.random.stateless_uniform([160, 160], [index, 0])
    for _ in range(times):
        values = tf.linalg.l2_normalize(tf.matmul(values, values))
    return values[0, :16]


def maps_in_turn():
    """sequential-map: 8 waits of 4 ms for a batch, one after the other."""
    return tf.data.Dataset.range(ENDLESS).map(_sleeping(0.004)).batch(8).prefetch(2), _light_step()


def _shard(number):
    return tf.data.Dataset.range(ENDLESS).map(_sleeping(0.004))


def reads_in_turn():
    """sequential-read: four slow sources, read one at a time."""
    rows = tf.data.Dataset.range(4).interleave(_shard, cycle_length=4)
    return _pool(rows.batch(8).prefetch(2), 16), _light_step()


def _records(files, records=64, compression=""):
    folder = Path(tempfile.mkdtemp())
    for number in range(files):
        with tf.io.TFRecordWriter(str(folder / f"{number}.tfrecord"), compression) as writer:
            for _ in range(records):
                writer.write(bytes(1 << 16))
    return sorted(str(path) for path in folder.iterdir())


def records_in_turn():
    """sequential-read: records of eight files, a file after the other, and hardly any work on them."""
    records = tf.data.TFRecordDataset(_records(8)).repeat()
    return records.map(lambda record: tf.io.decode_raw(record, tf.float32)[:16]).batch(16).prefetch(2), _light_step()


def records_of_one_file():
    """One file cannot be read in parallel by file."""
    records = tf.data.TFRecordDataset(_records(1)).repeat()
    return records.map(lambda record: tf.io.decode_raw(record, tf.float32)[:16]).batch(16).prefetch(2), _light_step()


def records_under_gzip():
    """compressed-records: one file that is decompressed in every epoch."""
    records = tf.data.TFRecordDataset(_records(1, compression="GZIP"), compression_type="GZIP").repeat()
    return records.map(lambda record: tf.io.decode_raw(record, tf.float32)[:16]).batch(16).prefetch(2), _light_step()


def prefetches_nothing():
    """no-prefetch: prefetch(0) keeps TensorFlow from adding one that works."""
    rows = tf.data.Dataset.range(ENDLESS).map(_sleeping(0.02)).prefetch(0)
    return rows, lambda batch: time.sleep(0.02)


def prefetches_one():
    """A buffer of one is enough for a steady input that is quicker than the step."""
    return tf.data.Dataset.range(ENDLESS).map(_sleeping(0.02)).prefetch(1), lambda batch: time.sleep(0.03)


def hoards_batches():
    """oversized-prefetch: room for 50,000 batches of 4 MB; the input is too slow to fill it."""
    rows = tf.data.Dataset.range(ENDLESS).map(_sleeping(0.02))
    return rows.map(lambda row: tf.zeros([1 << 20]) + row[0]).batch(1).prefetch(50_000), lambda batch: time.sleep(0.02)


def hoards_numbers():
    """As many elements, each of 64 bytes."""
    return tf.data.Dataset.range(ENDLESS).map(_sleeping(0.004)).prefetch(50_000), lambda batch: time.sleep(0.004)


def maps_after_the_device():
    """device-prefetch-not-last: the batch is on the device, and a map takes it back."""
    rows = tf.data.Dataset.range(ENDLESS).map(_sleeping(0.002)).batch(4)
    copied = rows.apply(tf.data.experimental.prefetch_to_device("/cpu:0", 2))
    return copied.map(lambda batch: batch * 2.0), _light_step()


def ends_on_the_device():
    """The copy to the device is last."""
    rows = tf.data.Dataset.range(ENDLESS).map(_sleeping(0.002)).batch(4).map(lambda batch: batch * 2.0)
    return rows.apply(tf.data.experimental.prefetch_to_device("/cpu:0", 2)), _light_step()


def computes_each_epoch():
    """cacheable: the same 64 elements are computed again in every epoch."""
    return tf.data.Dataset.range(64).map(_products).shuffle(64).batch(8).repeat().prefetch(2), _light_step()


def draws_each_epoch():
    """Not cacheable: the same work, on random numbers."""

    def draw(index):
        return _products(tf.random.uniform([], maxval=1_000_000, dtype=tf.int64))

    return tf.data.Dataset.range(64).map(draw).shuffle(64).batch(8).repeat().prefetch(2), _light_step()


def freezes_its_noise():
    """cache-misuse: noise before the cache is drawn once."""
    rows = tf.data.Dataset.range(64).map(lambda i: tf.random.normal([16]) + tf.cast(i, tf.float32)).cache()
    return rows.batch(8).repeat().prefetch(2), _light_step()


def draws_noise_after_the_cache():
    """Noise and order after the cache."""
    rows = tf.data.Dataset.range(64).map(lambda i: tf.fill([16], tf.cast(i, tf.float32))).cache()
    return rows.shuffle(64).map(lambda row: row + tf.random.normal([16])).batch(8).repeat().prefetch(2), _light_step()


def never_fills_its_cache():
    """cache-misuse: half of the elements are taken, so the cache is thrown away in each epoch."""
    rows = tf.data.Dataset.range(64).map(_sleeping(0.002)).cache().take(32)
    return rows.batch(8).repeat().prefetch(2), _light_step()


def takes_all_of_its_cache():
    """All of them are taken: the cache is complete."""
    rows = tf.data.Dataset.range(32).map(_sleeping(0.002)).cache().take(32)
    return rows.batch(8).repeat().prefetch(2), _light_step()


def filters_last():
    """late-filter: three of four elements are computed and then thrown away by their number."""
    rows = tf.data.Dataset.range(ENDLESS).map(lambda i: (i, _products(i)), num_parallel_calls=2)
    rows = rows.filter(lambda i, row: i % 4 == 0).map(lambda i, row: row)
    return rows.batch(8).prefetch(2), _light_step()


def filters_by_the_result():
    """The filter needs what was computed."""
    rows = tf.data.Dataset.range(ENDLESS).map(lambda i: (i, _products(i)), num_parallel_calls=2)
    rows = rows.filter(lambda i, row: row[0] > row[1]).map(lambda i, row: row)
    return rows.batch(8).prefetch(2), _light_step()


def shuffles_what_it_loaded():
    """shuffle-fill: a thousand elements of 4 ms are loaded before the first one comes out."""
    rows = tf.data.Dataset.range(ENDLESS).map(_sleeping(0.004)).shuffle(1000)
    return rows.batch(4).prefetch(2), lambda batch: time.sleep(0.02)


def shuffles_numbers():
    """The same, shuffled before it is loaded."""
    rows = tf.data.Dataset.range(ENDLESS).shuffle(1000).map(_sleeping(0.004))
    return rows.batch(4).prefetch(2), lambda batch: time.sleep(0.02)


def threads_without_work():
    """thread-pool: 256 threads, and nothing in them waits."""
    rows = tf.data.Dataset.range(ENDLESS).map(_products, num_parallel_calls=2)
    return _pool(rows.batch(4).prefetch(2), 256), lambda batch: time.sleep(0.03)


def threads_that_wait():
    """256 threads for calls that wait."""
    rows = tf.data.Dataset.range(ENDLESS).map(_sleeping(0.05), num_parallel_calls=256)
    return _pool(rows.batch(4).prefetch(2), 256), lambda batch: time.sleep(0.03)


def ugly_and_quick():
    """Everything in it is unfashionable, and the step does not wait for it."""
    rows = tf.data.Dataset.range(ENDLESS).map(_sleeping(0.001)).prefetch(4).batch(8).prefetch(2)
    return rows, lambda batch: time.sleep(0.03)
