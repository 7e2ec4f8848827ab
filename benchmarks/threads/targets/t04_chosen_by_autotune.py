"""Maps that all ask for AUTOTUNE, one of which waits for its storage, on a machine that stays mostly idle.

The report: with AUTOTUNE everywhere processor and accelerator stay far from busy; how does one see which numbers it
chose, and is the parallelism too low? tensorflow/tensorflow#58819
"""

import time

import numpy as np
import tensorflow as tf

IMAGES, SIDE, BATCH = 640, 32, 16


def fetch(number):
    time.sleep(0.008)
    return np.full((SIDE, SIDE, 3), number % 255, np.uint8)


def decode(number):
    image = tf.numpy_function(fetch, [number], tf.uint8)
    return tf.ensure_shape(image, (SIDE, SIDE, 3))


def scaled(image):
    return tf.cast(image, tf.float32) / 255.0


def make():
    images = tf.data.Dataset.range(IMAGES)
    images = images.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    images = images.map(scaled, num_parallel_calls=tf.data.AUTOTUNE)
    return images.batch(BATCH).prefetch(tf.data.AUTOTUNE)
