"""Q-learning that asks the model for one state at a time and fits it to one state at a time: ten times slower than it
was before version 2.

Reference: tensorflow/tensorflow#35124.
"""

import keras
import numpy as np

STATES, ACTIONS = 12, 2
rng = np.random.default_rng(12)
states = np.identity(STATES, dtype=np.float32)
model = keras.Sequential([keras.Input((STATES,)), keras.layers.Dense(24, "sigmoid"), keras.layers.Dense(ACTIONS)])
model.compile(optimizer="adam", loss="mse")


def move(state, action):
    """The next state and the reward: forwards for the first action, back to the start for the second."""
    return (min(state + 1, STATES - 1), float(state == STATES - 2)) if action == 0 else (0, 0.2)


state = 0
for _ in range(600):
    values = model.predict(states[state : state + 1], verbose=0)
    action = int(rng.integers(ACTIONS)) if rng.random() < 0.2 else int(values[0].argmax())
    following, reward = move(state, action)
    ahead = model.predict(states[following : following + 1], verbose=0)
    values[0, action] = reward + 0.95 * ahead.max()
    model.fit(states[state : state + 1], values, epochs=1, verbose=0)
    state = following
