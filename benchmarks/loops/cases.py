"""Eight training loops without a Dataset, and what is to be said and done of each.

Written before the first run, but for what that showed to be right as well: more lines of the second's and the eighth's
steps, in which they launch their ops; and for the words of two remedies: of the third, which had none, and of the
sixth, which predicts more often than it fits. Four are planted. Four are published scripts; a file ``targets/p*.txt``
says where in the clones their text lies and what is put in place of a download, a game and a log on a server:

- YunYang1994/TensorFlow2.0-Examples at 299fd6689f242d0f647a96b8844e86325e9fcb46
- marload/DeepRL-TensorFlow2 at 876266d9a5fcf7d8a7c7e3afd8b110085b32b615
- snowkylin/tensorflow-handbook at ee9fbe02ceee4e2f4fe23960219dd23ad5904c55
"""

from __future__ import annotations

from judging import Case

_OLD_KERAS = (("TF_USE_LEGACY_KERAS", "1"), ("MPLBACKEND", "Agg"))
_NO_INPUT = "verdict dispatch|host|compute"


def _optimize(file: str) -> tuple[str, ...]:
    return ("optimize", file, "--budget", "120")


CASES: tuple[Case, ...] = (
    Case(
        1,
        "planted",
        "a class with `__next__` reads each batch in the thread that trains",
        "l1_class.py",
        _optimize("l1_class.py"),
        ("verdict input", "limiting no-dataset", "line for images, targets in loader"),
        ("dataset", "says from_generator(lambda: loader"),
    ),
    Case(
        2,
        "planted",
        "a list of arrays in memory; the step runs op by op, and assigns its variables after a tape",
        "l2_list.py",
        _optimize("l2_list.py"),
        (_NO_INPUT, "line def train|loss = train(|targets.astype(|tape.gradient(|tf.nn.relu("),
        ("step", "says @tf.function"),
    ),
    Case(
        3,
        "planted",
        "one thread fills a `queue.Queue`, ahead of the step but slower than it",
        "l3_queue.py",
        _optimize("l3_queue.py"),
        ("verdict input", "limiting no-dataset", "line ready.get()", "says fill()"),
        ("dataset", "says num_parallel_calls="),
    ),
    Case(
        4,
        "planted",
        "a `while` loop takes batches from a generator for `train_on_batch`",
        "l4_while.py",
        _optimize("l4_while.py"),
        ("verdict input", "limiting no-dataset", "line next(batches)"),
        ("dataset", "says from_generator("),
    ),
    Case(
        5,
        "YunYang1994/TensorFlow2.0-Examples 3-Neural_Network_Architecture/autoencoder.py",
        "rows of an array by random numbers; tape and update written out in the loop",
        "p5_autoencoder.py",
        _optimize("p5_autoencoder.py"),
        (_NO_INPUT, "line true_image = X_train[|tf.GradientTape()"),
        ("step", "says @tf.function"),
        environment=_OLD_KERAS,
    ),
    Case(
        6,
        "marload/DeepRL-TensorFlow2 DQN/DQN_Discrete.py",
        "a replay buffer, and `fit` for each batch of it",
        "p6_dqn.py",
        _optimize("p6_dqn.py"),
        ("verdict compile|host|dispatch", "line self.model.fit(|self.model.predict("),
        ("says train_on_batch", "says predict_on_batch("),
    ),
    Case(
        7,
        "snowkylin/tensorflow-handbook text_generation/rnn.py",
        "lists put together in Python; an LSTM written out step by step, run op by op",
        "p7_text.py",
        _optimize("p7_text.py"),
        (_NO_INPUT, "line data_loader.get_batch(|tf.GradientTape()|y_pred = model(X)|self.cell("),
        ("step", "says @tf.function"),
        environment=_OLD_KERAS,
    ),
    Case(
        8,
        "snowkylin/tensorflow-handbook rl/qlearning.py",
        "moves of a game between the steps, each on a sample of a deque; tape and update written out in the loop",
        "p8_replay.py",
        _optimize("p8_replay.py"),
        (_NO_INPUT, "line batch_state, batch_action|tf.GradientTape()|model.predict(|model(batch_|apply_gradients("),
        ("step", "says @tf.function"),
        environment=_OLD_KERAS,
    ),
)
