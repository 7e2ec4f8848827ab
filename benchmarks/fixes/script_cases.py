"""The scripts of the corpus, unmodified, and what AUTOTUNE and a person make of each: edits of their text. Pure.

*AUTOTUNE* is what a reader of the tf.data guide would write: parallel calls and a prefetch of ``tf.data.AUTOTUNE``.
*Hand-tuned* is the best that was found by hand, the step included. What is edited stands in the script once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROJECT: Final = Path(__file__).resolve().parents[2]
_SCRIPTS: Final = _PROJECT / "benchmarks" / "scripts"
_TARGETS: Final = _PROJECT / "tests" / "targets" / "scripts"
Edits = Mapping[str, str]


@dataclass(frozen=True)
class ScriptCase:
    """A script with its arguments.

    Attributes:
        file: the script, as it is.
        tuned: its edits by hand.
        autotune: those of AUTOTUNE.
        arguments: of the command line.
        reachable: whether what was done by hand is a rewrite of the pipeline or a compilation of the step.
        title: its name, where that of the file says nothing.
    """

    file: Path
    tuned: Edits
    autotune: Edits
    arguments: tuple[str, ...] = ()
    reachable: bool = True
    title: str = ""

    @property
    def name(self) -> str:
        """Of the case: the script's."""
        return self.title or self.file.stem

    def version(self, edits: Edits) -> str:
        """The script's text with edits.

        Raises:
            ValueError: what is to be edited does not stand in it once.
        """
        text = self.file.read_text(encoding="utf-8")
        for before, after in edits.items():
            if text.count(before) != 1:
                raise ValueError(f"{self.file} has {before!r} {text.count(before)} times")
            text = text.replace(before, after)
        return text


_POOL: Final = """\
options = tf.data.Options()
options.threading.private_threadpool_size = 64
dataset = dataset.with_options(options)
"""
_READ: Final = "    lambda index: tf.ensure_shape(tf.numpy_function(read, [index], tf.float32), (32, 64))\n)\n"


def _mapped(calls: str, prefetch: str, more: str = "") -> Edits:
    """A map over ``read`` in parallel, and a prefetch behind it."""
    closed = f"\n).prefetch({prefetch})\n{more}"
    return {_READ: _READ.replace("\n)\n", f",\n    num_parallel_calls={calls},{closed}")}


_AUTO: Final = "tf.data.AUTOTUNE"
_READS: Final = {"tuned": _mapped("64", "4", _POOL), "autotune": _mapped(_AUTO, _AUTO)}
_PREFETCHED: Final = {".prefetch(2)": f".prefetch({_AUTO})"}
_COMPILED: Final = {"(from_logits=True))": "(from_logits=True), jit_compile=True)"}
_EAGER_LOOP: Final = """\
for batch in dataset:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(batch, training=True) - batch))
    optimizer.apply_gradients(
        zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
    )
"""
_COMPILED_LOOP: Final = (
    _EAGER_LOOP.replace("for batch in dataset:", "@tf.function\ndef train_step(batch):")
    + "    return loss\n\n\nfor batch in dataset:\n    loss = train_step(batch)\n"
)
_STEP: Final = """\
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(inputs, training=True) - targets))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
"""
_STEP_FUNCTION: Final = (
    "@tf.function\ndef train_step(inputs, targets):\n"
    + "".join(line[4:] for line in _STEP.splitlines(keepends=True))
    + "    return loss\n\n\nfor epoch in range(6):\n"
)
_ROWS: Final = "(read, [n], tf.float32), (16, 24)))"

CASES: Final = (
    ScriptCase(
        _SCRIPTS / "fit_input.py",
        {".map(load).batch(16)\n": f".map(load, num_parallel_calls=64).batch(16).prefetch(4)\n{_POOL}"},
        {".map(load).batch(16)\n": f".map(load, num_parallel_calls={_AUTO}).batch(16).prefetch({_AUTO})\n"},
    ),
    ScriptCase(_SCRIPTS / "fit_eager.py", {", run_eagerly=True": ""}, _PREFETCHED),
    ScriptCase(
        _SCRIPTS / "fit_generator.py",
        {".batch(16)\n": ".batch(16).prefetch(4)\n"},
        {".batch(16)\n": f".batch(16).prefetch({_AUTO})\n"},
    ),
    ScriptCase(_SCRIPTS / "fit_healthy.py", _COMPILED, _PREFETCHED),
    ScriptCase(_SCRIPTS / "train_on_batch.py", _COMPILED, _PREFETCHED),
    ScriptCase(_SCRIPTS / "in_function.py", **_READS),
    ScriptCase(_SCRIPTS / "loop_input.py", **_READS),
    ScriptCase(_SCRIPTS / "mirrored.py", **_READS),
    ScriptCase(_SCRIPTS / "loop_eager.py", {_EAGER_LOOP: _COMPILED_LOOP}, _PREFETCHED),
    ScriptCase(
        _SCRIPTS / "loop_retrace.py",
        {
            "0.01 / (1 + number // 2)": "0.01 / tf.cast(1 + number // 2, tf.float32)",
            "loss = train_step(batch, number)": "loss = train_step(batch, tf.constant(number))",
        },
        _PREFETCHED,
    ),
    ScriptCase(_SCRIPTS / "loop_saving.py", {"% 10 == 9": "% 100 == 99"}, _PREFETCHED, reachable=False),
    ScriptCase(
        _TARGETS / "writes.py",
        {
            _ROWS: f"{_ROWS[:-1]}, num_parallel_calls=32).prefetch(4)",
            "    def train_step": "    @tf.function\n    def train_step",
        },
        {_ROWS: f"{_ROWS[:-1]}, num_parallel_calls={_AUTO}).prefetch({_AUTO})"},
        ("written", "3"),
    ),
    ScriptCase(
        _TARGETS / "written_out.py",
        {_STEP: "        loss = train_step(inputs, targets)\n", "for epoch in range(6):\n": _STEP_FUNCTION},
        _PREFETCHED,
        ("losses.txt",),
    ),
)
"""``fit`` and loops of their own, in Python and in a graph, on one device and on two."""
