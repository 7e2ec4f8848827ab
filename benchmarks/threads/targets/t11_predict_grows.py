"""Predictions in a loop, each of an image of another size: memory and time grow with every call.

Reference: tensorflow/tensorflow#38598.
"""

import keras
import numpy as np

rng = np.random.default_rng(11)
inputs = keras.Input((None, None, 3))
outputs = keras.layers.Conv2D(16, 3, padding="same")(inputs)
model = keras.Model(inputs, outputs)

seen = 0.0
for _ in range(3000):
    height, width = rng.integers(32, 160, 2)
    image = rng.random((height, width, 3), dtype=np.float32)
    seen += float(model.predict(image[np.newaxis], verbose=0).mean())
print(seen)
