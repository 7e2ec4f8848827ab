"""A class that builds its data in steps, with options and settings between them."""

import tensorflow as tf

from . import loading


class Builder:
    def __init__(self, args):
        self.args = args
        self.dataset = None

    def _options(self):
        options = tf.data.Options()
        options.deterministic = True
        return options

    def build(self, training=True):
        self.dataset = loading.files(self.args.count, self.args.wait)
        size = max(self.args.buffer, 2)
        if training:
            self.dataset = self.dataset.shuffle(size, seed=7, reshuffle_each_iteration=False)

        if self.args.verbose:
            print("clips:", self.args.count)
        self.dataset = loading.decoded(self.dataset, self.args.scale)

        if self.args.limit:
            self.dataset = self.dataset.take(self.args.limit)
        options = self._options()
        batch = self.args.batch if training else 2 * self.args.batch
        self.dataset = self.dataset.batch(batch)
        self.dataset = self.dataset.with_options(options)
        return self.dataset
