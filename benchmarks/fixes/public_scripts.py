"""Training scripts that others have published, as they stand, on data made here: where they lie, what is done by hand.

Their code is taken from clones (``--code``, see ``benchmarks/others/README.md``) and is in no file of ours; a script
without its clone is left out, with a sentence. Of a notebook the code cells are joined, without lines for a shell.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import tarfile
import textwrap
import wave
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from script_cases import Edits, ScriptCase

sys.path.append(str(Path(__file__).resolve().parents[1] / "others"))
import made

ENVIRONMENT: Final = {"MPLBACKEND": "Agg", "KERAS_HOME": "keras"}
"""Plots go nowhere, and what Keras would download lies in the script's own directory."""
_WORDS: Final = ["no", "yes", "down", "go", "left", "up", "right", "stop"]


class MissingError(Exception):
    """The code of a script is not at hand."""


@dataclass(frozen=True)
class PublicScript:
    """A script of a public repository.

    Attributes:
        name: of the case.
        repository: on GitHub.
        commit: that was measured.
        path: in the repository; a notebook's code becomes a script of its name.
        data: makes what it reads, in the directory that it runs in.
        tuned: what a person edits, of the script's text where it takes that, and AUTOTUNE, as for :class:`ScriptCase`.
        autotune: see above.
    """

    name: str
    repository: str
    commit: str
    path: str
    data: Callable[[Path], None]
    tuned: Edits | Callable[[str], Edits]
    autotune: Edits = field(default_factory=dict)

    def case(self, code: Path | None, folder: Path) -> ScriptCase:
        """The case, its script and data written to a directory.

        Raises:
            MissingError: the clone, or that commit of it, is not there.
        """
        clone = code / self.repository.partition("/")[2] if code is not None else None
        command = ["git", "-C", str(clone), "show", f"{self.commit}:{self.path}"]
        done = subprocess.run(command, capture_output=True, check=False) if clone is not None else None
        if done is None or done.returncode:
            where = f"git clone https://github.com/{self.repository}"
            raise MissingError(
                f"{self.name} is left out: its code is not at hand ({where}, {self.commit}, {self.path})"
            )
        if not (folder / "made").exists():
            folder.mkdir(parents=True, exist_ok=True)
            self.data(folder)
            (folder / "made").touch()
        file = folder / Path(self.path).with_suffix(".py").name
        file.write_bytes(_cells(done.stdout) if self.path.endswith(".ipynb") else done.stdout)
        tuned = self.tuned(file.read_text(encoding="utf-8")) if callable(self.tuned) else self.tuned
        return ScriptCase(file, tuned, self.autotune, title=self.name)


def _cells(notebook: bytes) -> bytes:
    cells = ["".join(cell["source"]) for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
    lines = ["\n".join(one for one in cell.splitlines() if not one.lstrip().startswith(("!", "%"))) for cell in cells]
    return ("\n\n".join(lines) + "\n").encode()


def _clothes(folder: Path) -> None:
    """Random images and labels in the files of Fashion MNIST."""
    draw, files = np.random.default_rng(0), folder / "keras/datasets/fashion-mnist"
    files.mkdir(parents=True)
    (folder / "images").mkdir()
    for name, count in (("train", 60_000), ("t10k", 10_000)):
        for kind, head, shape, below in (("labels-idx1", 8, (count,), 10), ("images-idx3", 16, (count, 784), 256)):
            with gzip.open(files / f"{name}-{kind}-ubyte.gz", "wb", 1) as file:
                file.write(bytes(head) + draw.integers(0, below, shape, "uint8").tobytes())


def _pets(folder: Path) -> None:
    """600 photos of 512 x 384 where the book has them."""
    root = folder / "C:/datasets/cats_vs_dogs"
    made.pets(root)
    shutil.copytree(root / "train", root / "valid")


def _flowers(folder: Path) -> None:
    """960 photos of 320 x 240 in five folders, as the archive that the tutorial downloads."""
    kinds = ("daisy", "dandelion", "roses", "sunflowers", "tulips")
    made.jpegs(folder / "photos", [f"{kinds[number % 5]}/{number:04}.jpg" for number in range(960)], 240, 320)
    (folder / "keras/datasets").mkdir(parents=True)
    with tarfile.open(folder / "keras/datasets/flower_photos.tgz", "w:gz") as archive:
        archive.add(folder / "photos", "flower_photos")
    shutil.copy(folder / "photos/sunflowers/0003.jpg", folder / "keras/datasets/Red_sunflower")


def _reviews(folder: Path) -> None:
    """2,000 reviews as the archive that the tutorial downloads."""
    made.imdb(folder / "reviews")
    shutil.copy(next((folder / "reviews/train/pos").iterdir()), folder / "reviews/train/pos/1181_9.txt")
    shutil.copytree(folder / "reviews/train", folder / "reviews/test")
    (folder / "reviews/train/unsup").mkdir()
    with tarfile.open(folder / "aclImdb_v1_archive", "w:gz") as archive:
        archive.add(folder / "reviews", "aclImdb")


def _commands(folder: Path) -> None:
    """2,000 clips of noise of up to a second, in a folder for each of eight words."""
    draw = np.random.default_rng(0)
    for word in _WORDS:
        files = folder / "data/mini_speech_commands" / word
        files.mkdir(parents=True)
        for number in range(250):
            name = "01bb6a2a_nohash_0.wav" if number == 0 else f"{number:04}.wav"
            with wave.open(str(files / name), "wb") as file:
                file.setparams((1, 2, 16_000, 0, "NONE", ""))
                file.writeframes(draw.normal(0, 3000, int(draw.integers(12_000, 16_001))).astype("<i2").tobytes())


_DOCS: Final = "tensorflow/docs", "7c3650212740204359d4ceae481abc79345541be"
_TUTORIALS: Final = "dragen1860/TensorFlow-2.x-Tutorials", "9861a308283d17693d497fdfaab20b92c0b26d08"
_HANDBOOK: Final = "snowkylin/tensorflow-handbook", "ee9fbe02ceee4e2f4fe23960219dd23ad5904c55"
_AUTO: Final = "tf.data.AUTOTUNE"
_STEPPED: Final = "def train_one_step("
_PAGES: Final = "site/en/tutorials"


def _xla(before: str) -> Edits:
    """XLA for the model that is trained next: where nothing waits, what is left to a person."""
    return {before: f"{' ' * (len(before) - len(before.lstrip()))}model.jit_compile = True\n{before}"}


def _step_of_its_own(text: str) -> Edits:
    """The statements from the tape to the update as a compiled function above the loop."""
    loop, last = "for epoch in range(num_epochs):\n", "        optimizer.apply_gradients("
    begin = text.index("        with tf.GradientTape() as tape:\n")
    end = text.index("\n", text.index(last, begin)) + 1
    block, results = text[begin:end], "reconstruction_loss, kl_div"
    function = "@tf.function\ndef training_step(x):\n" + textwrap.indent(textwrap.dedent(block), "    ")
    return {block: f"        {results} = training_step(x)\n", loop: f"{function}    return {results}\n\n\n{loop}"}


PUBLIC: Final = (
    PublicScript(
        "clothes",
        *_TUTORIALS,
        "05-FashionMNIST/mnist_Seqential_gradient.py",
        _clothes,
        {_STEPPED: f"@tf.function\n{_STEPPED}"},
        {".shuffle(20000).batch(100)\n": f".shuffle(20000).batch(100).prefetch({_AUTO})\n"},
    ),
    PublicScript(
        "autoencoder",
        *_TUTORIALS,
        "12-VAE/main.py",
        _clothes,
        _step_of_its_own,
        {".batch(batch_size)\n": f".batch(batch_size).prefetch({_AUTO})\n"},
    ),
    PublicScript("sentiment", *_DOCS, f"{_PAGES}/keras/text_classification.ipynb", _reviews, _xla("epochs = 10\n")),
    PublicScript("commands", *_DOCS, f"{_PAGES}/audio/simple_audio.ipynb", _commands, _xla("EPOCHS = 10\n")),
    PublicScript("photos", *_DOCS, f"{_PAGES}/images/classification.ipynb", _flowers, _xla("epochs=10\n")),
    PublicScript(
        "pets", *_HANDBOOK, "source/_static/code/zh/tools/tfdata/cats_vs_dogs.py", _pets, _xla("    model.fit(")
    ),
)
"""Photos, pets, reviews and speech commands by ``fit``; loops of their own whose step runs op by op."""
