"""Public reports of trouble with TensorFlow, made anew in our own code, and what is to be said and done of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TARGETS = Path(__file__).resolve().parent / "targets"


@dataclass(frozen=True)
class Case:
    """A thread, and the truth about it.

    Attributes:
        number: 1 to 20.
        reference: the public report, ``owner/repository#number``; more of one trouble are joined by commas.
        title: its trouble in a few words.
        file: name in ``targets/``; the command runs in a folder that holds it.
        command: arguments of xttsbench, without ``--out``.
        cause: entries that all have to hold, each a kind and alternatives joined by ``|``:
            ``verdict input|contention``, the bottleneck; ``rule python-function``, a finding; ``limiting RULE``, one
            that limits; ``line TEXT``, a line with this text that the verdict or a finding points to; ``says TEXT``,
            words of the screen or of a finding; ``outcome same|differs``, of ``prove``.
        cured: fixes of which one has to be accepted, by name, ``native`` or ``cache``, or ``says TEXT`` of a remedy
            that is written out; ``None`` where there is no cure of ours.
        sentence: words of the screen, where it is not ours: that it is TensorFlow's doing, and what helps.
    """

    number: int
    reference: str
    title: str
    file: str
    command: tuple[str, ...]
    cause: tuple[str, ...]
    cured: tuple[str, ...] | None
    sentence: str = ""


CASES: tuple[Case, ...] = (
    Case(
        1,
        "tensorflow/tensorflow#56258",
        "from_generator is ten times slower than from_tensor_slices",
        "t01_generator_or_slices.py",
        ("optimize", "t01_generator_or_slices.py:make", "--budget", "110"),
        ("verdict input", "limiting python-function|per-element-overhead", "line from_generator|def rows"),
        ("native", "processes", "open-generator", "batch-first", "cache"),
    ),
    Case(
        2,
        "tensorflow/tensorflow#44274",
        "a parallel interleave over Python that computes gains nothing",
        "t02_interleave_gains_nothing.py",
        ("optimize", "t02_interleave_gains_nothing.py:make", "--budget", "110"),
        ("verdict input", "limiting python-function", "line def read_part", "says interpreter"),
        ("processes", "native", "cache"),
    ),
    Case(
        3,
        "tensorflow/tensorflow#62821",
        "20 million turns of a Python loop on all cores, whatever cpu_budget says",
        "t03_twenty_million_turns.py",
        ("optimize", "t03_twenty_million_turns.py:make", "--budget", "110"),
        ("verdict input", "limiting python-function", "line def count", "says interpreter lock"),
        ("native", "processes", "cache"),
    ),
    Case(
        4,
        "tensorflow/tensorflow#58819",
        "AUTOTUNE everywhere, and an idle machine: what did it choose?",
        "t04_chosen_by_autotune.py",
        ("optimize", "t04_chosen_by_autotune.py:make", "--budget", "75"),
        ("verdict input", "limiting thread-pool|python-function", "line def fetch", "says AUTOTUNE chose"),
        ("thread-pool", "cache"),
    ),
    Case(
        5,
        "tensorflow/tensorflow#60822",
        "a shuffle of 500,000 over rows in memory is slow",
        "t05_shuffle_of_rows_in_memory.py",
        ("optimize", "t05_shuffle_of_rows_in_memory.py:make", "--budget", "75"),
        ("verdict input", "limiting per-element-overhead", "line from_tensor_slices|shuffle(BUFFER)"),
        ("gather",),
    ),
    Case(
        6,
        "tensorflow/tensorflow#60599, tensorflow/tensorflow#44176",
        "a shuffle holds ten times the memory of its numbers",
        "t06_memory_of_shuffle.py",
        ("optimize", "t06_memory_of_shuffle.py:make", "--budget", "75"),
        ("rule shuffle-fill", "line .shuffle(NUMBERS)", "says are data"),
        ("says tf.random.shuffle(",),
    ),
    Case(
        7,
        "tensorflow/tensorflow#35010, tensorflow/tensorflow#61344",
        "memory grows with every call of py_function",
        "t07_py_function_leaks.py",
        ("diagnose", "t07_py_function_leaks.py:make", "--budget", "60"),
        ("rule memory-leak", "says py_function keeps", "line tf.py_function|def waves|np.cos"),
        ("says tf.numpy_function(",),
    ),
    Case(
        8,
        "tensorflow/tensorflow#37178",
        "cache and prefetch of each chunk speed nothing up",
        "t08_cache_of_each_chunk.py",
        ("diagnose", "t08_cache_of_each_chunk.py", "--budget", "75"),
        ("rule between-fits", "line from_tensor_slices((x, y))", "says reaches no further"),
        ("says from_generator(",),
    ),
    Case(
        9,
        "tensorflow/tensorflow#50252, tensorflow/tensorflow#70541",
        "a generator on the tf.data service is not found by its worker",
        "t09_generator_on_the_service.py",
        ("diagnose", "t09_generator_on_the_service.py:make", "--budget", "60"),
        ("says tf.data service",),
        None,
        "worker of the tf.data service is another process",
    ),
    Case(
        10,
        "tensorflow/tensorflow#45609",
        "a cache that is discarded at the end of each epoch",
        "t10_cache_never_complete.py",
        ("optimize", "t10_cache_never_complete.py:make", "--budget", "110"),
        ("verdict input", "limiting cache-misuse", "line .cache()"),
        ("cache",),
    ),
    Case(
        11,
        "tensorflow/tensorflow#38598",
        "predict in a loop, for images of all sizes, takes ever more memory",
        "t11_predict_grows.py",
        ("optimize", "t11_predict_grows.py", "--budget", "75"),
        ("limiting call-per-batch|retracing", "line model.predict("),
        ("says model.predict_on_batch(image[np.newaxis])",),
    ),
    Case(
        12,
        "tensorflow/tensorflow#35124",
        "Q-learning that predicts and fits a row at a time",
        "t12_predict_row.py",
        ("optimize", "t12_predict_row.py", "--budget", "75"),
        ("limiting call-per-batch", "line model.predict(", "line model.fit("),
        ("says model.train_on_batch(states[state:state + 1], values)",),
    ),
    Case(
        13,
        "tensorflow/tensorflow#62198, keras-team/keras-cv#2406",
        "XLA compiles for each length of a sequence",
        "t13_xla_length.py",
        ("optimize", "t13_xla_length.py", "--budget", "150"),
        ("verdict compile", "limiting xla-recompilation"),
        ("step", "says jit_compile=False"),
    ),
    Case(
        14,
        "keras-team/keras#19953",
        "small Dense and Dropout layers that were faster with Keras 2",
        "t14_small_dense.py",
        ("optimize", "t14_small_dense.py", "--budget", "150"),
        ("verdict compute|dispatch|host", "says nothing in the input pipeline|several steps in one call|XLA"),
        ("step",),
    ),
    Case(
        15,
        "keras-team/keras#16573, keras-team/keras#20451",
        "a step so short that handing over each batch takes longer",
        "t15_steps_per_execution.py",
        ("optimize", "t15_steps_per_execution.py", "--budget", "150"),
        ("verdict dispatch|host|compute", "says several steps in one call"),
        ("step",),
    ),
    Case(
        16,
        "keras-team/keras#23283",
        "workers of a PyDataset that read before its on_epoch_begin has run",
        "t16_workers_epoch_begin.py",
        ("diagnose", "t16_workers_epoch_begin.py", "--budget", "60"),
        ("rule early-workers", "line def on_epoch_begin(self)"),
        ("says def on_epoch_end(self)",),
    ),
    Case(
        17,
        "tensorflow/tensorflow#49730",
        "a Sequence under ten replicas stands still",
        "t17_sequence_replicas.py",
        ("optimize", "t17_sequence_replicas.py", "--budget", "150"),
        ("verdict compile", "rule retracing", "says iterator of each replica anew"),
        None,
        "TensorFlow makes the iterator of each replica anew in every epoch",
    ),
    Case(
        18,
        "tensorflow/tensorflow#34025",
        "a learning rate given to the step as a Python number",
        "t18_retracing.py",
        ("optimize", "t18_retracing.py", "--budget", "150"),
        ("verdict compile", "limiting retracing", "says Python value", "line train(features|def train"),
        ("step",),
    ),
    Case(
        19,
        "tensorflow/tensorflow#37876",
        "on_train_batch_end of a callback is slow compared to the batch",
        "t19_callback_batch.py",
        ("optimize", "t19_callback_batch.py", "--budget", "75"),
        ("verdict host", "limiting host-stall", "line np.linalg.svd|self.norms.append|get_weights"),
        ("says if batch % 100: return",),
    ),
    Case(
        20,
        "tensorflow/tensorflow#73864, keras-team/keras#9151",
        "compile in a loop over fit",
        "t20_compile_in_loop.py",
        ("optimize", "t20_compile_in_loop.py", "--budget", "75"),
        ("verdict compile", "limiting retracing", "line model.fit(|model.compile("),
        ("says model.compile(...)` in front of the loop",),
    ),
)
