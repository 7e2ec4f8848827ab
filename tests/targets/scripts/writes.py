"""Trains on files that are late, in an eager step, and leaves things behind. Usage: writes.py FOLDER [EPOCHS]."""

import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

FOLDER = Path(sys.argv[1])
EPOCHS = int(sys.argv[2]) if len(sys.argv) > 2 else 3


def read(number):
    time.sleep(0.006)
    return np.random.default_rng(int(number)).normal(size=(16, 24)).astype("float32")


class Trainer:
    """A loop as projects have it: the step is a method, and a log and a checkpoint are written in each epoch."""

    def __init__(self):
        shapes = [(24, 24)] * 12
        self.layers = [tf.Variable(tf.random.stateless_normal(shape, (1, n)) * 0.2) for n, shape in enumerate(shapes)]
        self.saver = tf.train.Checkpoint(layers=self.layers)

    def dataset(self, first, count):
        numbers = tf.data.Dataset.range(first, first + count)
        return numbers.map(lambda n: tf.ensure_shape(tf.numpy_function(read, [n], tf.float32), (16, 24)))

    def train_step(self, batch):
        with tf.GradientTape() as tape:
            hidden = batch
            for layer in self.layers:
                hidden = tf.nn.tanh(tf.matmul(hidden, layer))
            loss = tf.reduce_mean(tf.square(hidden - batch))
        for layer, gradient in zip(self.layers, tape.gradient(loss, self.layers), strict=True):
            layer.assign_sub(0.05 * gradient)
        return loss

    def run(self):
        train, held_out = self.dataset(0, 120), self.dataset(1000, 5)
        for epoch in range(EPOCHS):
            for batch in train:
                loss = self.train_step(batch)
            for _ in held_out:
                pass
            with open(FOLDER / "log.txt", "a") as log:
                log.write(f"{epoch} {float(loss)}\n")
            self.saver.write(str(FOLDER / "checkpoint" / f"{epoch}"))
            np.save(FOLDER / f"weights-{epoch}.npy", self.layers[0].numpy())


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    Trainer().run()
