"""The pipelines and loops of others that are measured, and what is known of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORIES = {
    "docs": "tensorflow/docs",
    "docs-l10n": "tensorflow/docs-l10n",
    "keras": "keras-team/keras",
    "TensorFlowTTS": "TensorSpeech/TensorFlowTTS",
    "MyXTTSModel": "masoodafar-web/MyXTTSModel",
    "CycleGAN-Tensorflow-2": "LynnHo/CycleGAN-Tensorflow-2",
    "yolov3-tf2": "zzh8829/yolov3-tf2",
    "Deep-Learning-with-TensorFlow-book": "dragen1860/Deep-Learning-with-TensorFlow-book",
    "tensorflow-handbook": "snowkylin/tensorflow-handbook",
    "eat_tensorflow2_in_30_days": "lyhue1991/eat_tensorflow2_in_30_days",
    "TransformerTTS": "as-ideas/TransformerTTS",
    "ssd-tf2": "ChunML/ssd-tf2",
    "SparrowRecSys": "wzhe06/SparrowRecSys",
    "bert4keras": "bojone/bert4keras",
    "DeepRL-TensorFlow2": "marload/DeepRL-TensorFlow2",
}
"""Folder of a clone -> the repository."""


@dataclass(frozen=True)
class Pipeline:
    """A function or script of others.

    Attributes:
        name: of the case; of a function in ``file``, unless that is a script.
        title: whose it is, and what, for a reader.
        file: that xttsbench is pointed at, made of ``targets/*.txt`` of the same stem.
        known: verdicts that are right: what the publisher says of the pipeline, or what a plain loop shows.
        command: ``optimize`` where the fixes are for a dataset, else ``diagnose``.
        step_ms: of an emulated accelerator, where the published code has no step.
        legacy: whether it is written for Keras 2, which TF_USE_LEGACY_KERAS=1 asks for.
        script: how a script asks for its batches: by a ``loop``, or by ``fit``.
        own: the faster form that its authors publish beside it, if they do: a function, or the stem of a script.
        advised: the same, where it is what xttsbench advises, so that it is the version after as well.
        data: data sets of :mod:`made` that it reads.
        tried: edits by hand, timed where nothing was changed: a name, a text of ``file``, what stands in its place.
        trees: files and packages of a clone that its file imports, and that lie beside it.
    """

    name: str
    title: str
    file: str
    known: tuple[str, ...]
    command: str = "optimize"
    step_ms: float | None = None
    legacy: bool = False
    script: str = ""
    own: str = ""
    advised: str = ""
    data: tuple[str, ...] = field(default=())
    tried: tuple[tuple[str, str, str], ...] = ()
    trees: tuple[str, ...] = ()

    @property
    def clone(self) -> str:
        """Folder of the clone that its code comes from."""
        first = self.trees[0] if self.trees else self.template().split("@take ", 1)[1]
        return first.split("/", 1)[0]

    @property
    def environment(self) -> dict[str, str]:
        """Variables that its processes have beside those of this one."""
        return {"TF_USE_LEGACY_KERAS": "1"} if self.legacy else {}

    @property
    def target(self) -> str:
        """As the command line names it."""
        return self.file if self.script else f"{self.file}:{self.name}"

    def template(self, stem: str = "") -> str:
        """The text that its file, or another script, is made of."""
        return (HERE / "targets" / f"{stem or Path(self.file).stem}.txt").read_text(encoding="utf-8")

    def words(self, budget_s: float) -> list[str]:
        """The command, after ``xttsbench``."""
        accelerator = [] if self.step_ms is None else ["--accelerator", f"emulated:{self.step_ms:g}"]
        return [self.command, self.target, *accelerator, "--budget", f"{budget_s:g}"]


_GUIDE = "TensorFlow guide"
_TUTORIAL = "TensorFlow tutorial"
_LOADER: dict[str, Any] = {"step_ms": 10, "data": ("speech",)}
PIPELINES = (
    Pipeline("map_seq", f"{_GUIDE}: sequential map", "performance.py", ("input",), own="map_par"),
    Pipeline("interleave_seq", f"{_GUIDE}: sequential interleave", "performance.py", ("input",), own="interleave_par"),
    Pipeline("scalar_map", f"{_GUIDE}: scalar map", "performance.py", ("input",), own="vectorized_map"),
    Pipeline("images", f"{_GUIDE}: JPEG files", "data.py", ("input",), data=("flowers",)),
    Pipeline(
        "rotated",
        f"{_GUIDE}: rotated images",
        "data.py",
        ("input",),
        step_ms=5,
        data=("flowers",),
        tried=(
            ("cache before the rotation", "images_ds.map(tf_random", "images_ds.cache().map(tf_random"),
            ("prefetch", "return rot_ds", "return rot_ds.prefetch(64)"),
            ("parallel calls", ".map(tf_random_rotate_image)", ".map(tf_random_rotate_image, num_parallel_calls=-1)"),
        ),
    ),
    Pipeline(
        "windows",
        f"{_GUIDE}: windows",
        "data.py",
        ("input",),
        tried=(
            ("cache at the end", "return ds", "return ds.cache()"),
            ("prefetch", "return ds", "return ds.prefetch(64)"),
        ),
    ),
    Pipeline("melgan", "TensorFlowTTS: AudioMelDataset", "tts.py", ("input",), own="melgan_cached", **_LOADER),
    Pipeline("audio", "TensorFlowTTS: AudioDataset", "tts.py", ("input",), own="audio_cached", **_LOADER),
    Pipeline("tacotron", "TensorFlowTTS: CharactorMelDataset", "tts.py", ("input",), own="tacotron_cached", **_LOADER),
    Pipeline(
        "myxtts",
        "MyXTTS: the trainer's loader",
        "loader.py",
        ("input",),
        step_ms=10,
        data=("ljspeech",),
        trees=("MyXTTSModel/myxtts",),
    ),
    Pipeline(
        "horses",
        "CycleGAN: images to evaluate",
        "cyclegan.py",
        ("input",),
        data=("horses",),
        trees=("CycleGAN-Tensorflow-2/data.py", "CycleGAN-Tensorflow-2/tf2lib"),
    ),
    Pipeline(
        "boxes",
        "yolov3-tf2: TFRecord files, two modules",
        "yolo.py",
        ("input",),
        step_ms=20,
        data=("boxes",),
        advised="yolo_repeated",
        trees=("yolov3-tf2/yolov3_tf2/dataset.py",),
        tried=(
            ("cache before shuffle", "train_dataset.shuffle(", "train_dataset.cache().shuffle("),
            ("parallel calls", "anchor_masks, FLAGS.size)))", "anchor_masks, FLAGS.size)), num_parallel_calls=-1)"),
        ),
    ),
    Pipeline("facades", f"{_TUTORIAL}: pix2pix", "pix2pix.py", ("input",), data=("facades",)),
    Pipeline("weather", f"{_TUTORIAL}: windows of a series, a class", "time_series.py", ("input",)),
    Pipeline("photos", f"{_TUTORIAL}: images", "load_images.py", ("input",), data=("flowers",)),
    Pipeline("fonts", f"{_TUTORIAL}: CSV files", "fonts.py", ("input",), step_ms=10, data=("csv",)),
    Pipeline(
        "sentiment",
        f"{_TUTORIAL}: text classification",
        "text_classification.py",
        ("input",),
        own="sentiment_cached",
        data=("imdb",),
    ),
    Pipeline(
        "faces",
        "Deep Learning with TensorFlow: faces for a GAN",
        "anime.py",
        ("input",),
        step_ms=5,
        data=("faces",),
        trees=("Deep-Learning-with-TensorFlow-book/ch13-生成对抗网络/dataset.py",),
    ),
    Pipeline("pets", "TensorFlow handbook: cats and dogs", "cats_vs_dogs.py", ("input",), step_ms=10, data=("pets",)),
    Pipeline("small_images", "TensorFlow in 30 days: images", "thirty_days.py", ("input",), step_ms=2, data=("book",)),
    Pipeline("reviews", "TensorFlow in 30 days: reviews", "thirty_days.py", ("input",), data=("book",)),
    Pipeline(
        "aligner", "TransformerTTS: the aligner's loader", "transformer_tts.py", ("input",), step_ms=20, data=("mels",)
    ),
    Pipeline(
        "custom_loop",
        "Keras guide: loop from scratch",
        "custom_loop.py",
        ("dispatch",),
        command="diagnose",
        script="loop",
        advised="custom_loop_compiled",
    ),
    Pipeline(
        "mnist_convnet",
        "Keras example: MNIST convnet",
        "mnist_convnet.py",
        ("compute",),
        command="diagnose",
        script="fit",
    ),
    Pipeline(
        "detection",
        "ssd-tf2: boxes by a generator, four modules",
        "ssd.py",
        ("input",),
        step_ms=30,
        data=("voc",),
        advised="ssd_graph",
        trees=tuple(
            f"ssd-tf2/{name}" for name in ("voc_data.py", "image_utils.py", "box_utils.py", "anchor.py", "config.yml")
        ),
    ),
    Pipeline(
        "articles",
        "bert4keras: texts through its tokenizer, a class",
        "iflytek.py",
        ("input",),
        step_ms=30,
        legacy=True,
        data=("articles",),
        advised="iflytek_kept",
        trees=("bert4keras/bert4keras",),
    ),
    Pipeline(
        "neural_cf",
        "SparrowRecSys: films from CSV",
        "neural_cf.py",
        ("compute",),
        legacy=True,
        script="fit",
        data=("ratings",),
    ),
    Pipeline(
        "dqn",
        "DeepRL-TensorFlow2: replay buffer",
        "dqn.py",
        ("host",),
        command="diagnose",
        script="fit",
        advised="dqn_on_batch",
    ),
    Pipeline(
        "custom_training",
        f"{_TUTORIAL}: tf.distribute",
        "custom_training.py",
        # By a clock in its loop 7 of 70 to 83 ms a step are waits, on another machine 4 of 24.
        ("input", "compute"),
        legacy=True,
        script="loop",
        tried=(
            (
                "prefetch",
                "shuffle(BUFFER_SIZE).batch(GLOBAL_BATCH_SIZE)",
                "shuffle(BUFFER_SIZE).batch(GLOBAL_BATCH_SIZE).prefetch(-1)",
            ),
            ("the dataset itself", "for x in train_dist_dataset:", "for x in train_dataset:"),
        ),
    ),
)
