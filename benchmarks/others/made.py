"""Data of the shape that the published code reads, made here with a seed where theirs is a download."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np


def flowers(folder: Path) -> None:
    """160 JPEG files of 320 x 240 in five folders, as the photos of flowers lie."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    draw = np.random.default_rng(0)
    for number in range(160):
        coarse = draw.integers(0, 256, (12, 16, 3), "uint8")
        image = np.clip(np.kron(coarse, np.ones((20, 20, 1))) + draw.normal(0, 8, (240, 320, 3)), 0, 255)
        file = folder / ("daisy", "dandelion", "roses", "sunflowers", "tulips")[number % 5] / f"{number:04}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(tf.io.encode_jpeg(image.astype("uint8"), quality=90).numpy())


def speech(folder: Path) -> None:
    """400 utterances of 1 to 6 s at 22,050 Hz: waves and 80 mel bands each 256 samples, in the names of the package."""
    draw = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for number in range(400):
        frames = int(draw.uniform(1, 6) * 22050 / 256)
        np.save(folder / f"{number:04}-wave.npy", draw.normal(0, 0.1, frames * 256).astype("float32"))
        np.save(folder / f"{number:04}-norm-feats.npy", draw.normal(0, 1, (frames, 80)).astype("float32"))
        np.save(folder / f"{number:04}-ids.npy", draw.integers(1, 148, frames // 6, "int32"))


def ljspeech(folder: Path) -> None:
    """256 utterances of 1 to 10 s, as files of LJSpeech lie."""
    from xttsbench.xtts.data.make import make_data

    make_data(folder, 256, 0, 1.0, 10.0)


def horses(folder: Path) -> None:
    """120 JPEG files of 256 x 256."""
    jpegs(folder, [f"n{number:05}.jpg" for number in range(120)], 256, 256)


def facades(folder: Path) -> None:
    """120 JPEG files of 512 x 256, a photo and its drawing side by side, where the tutorial has them to test."""
    jpegs(folder, [f"test/{number + 1}.jpg" for number in range(120)], 256, 512)


def boxes(folder: Path) -> None:
    """Four TFRecord files of 32 JPEG images of 416 x 416 each, with one to three boxes, and the names of classes."""
    import tensorflow as tf

    draw = np.random.default_rng(0)
    folder.mkdir(parents=True)
    (folder / "names.txt").write_text("cat\ndog\n")
    images = _images(128, 416, 416)
    for file in range(4):
        with tf.io.TFRecordWriter(str(folder / f"train-{file}.tfrecord")) as writer:
            for _ in range(32):
                count = int(draw.integers(1, 4))
                corners = np.sort(draw.uniform(0, 1, (2, 2, count)), axis=0)
                sides = {"xmin": corners[0, 0], "xmax": corners[1, 0], "ymin": corners[0, 1], "ymax": corners[1, 1]}
                floats = {f"image/object/bbox/{name}": tf.train.FloatList(value=one) for name, one in sides.items()}
                names = tf.train.BytesList(value=[draw.choice([b"cat", b"dog"]) for _ in range(count)])
                feature = {name: tf.train.Feature(float_list=one) for name, one in floats.items()}
                feature["image/object/class/text"] = tf.train.Feature(bytes_list=names)
                encoded = tf.train.BytesList(value=[next(images)])
                feature["image/encoded"] = tf.train.Feature(bytes_list=encoded)
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())


def faces(folder: Path) -> None:
    """1,000 JPEG files of 96 x 96."""
    jpegs(folder, [f"{number}.jpg" for number in range(1000)], 96, 96)


def pets(folder: Path) -> None:
    """600 JPEG files of 512 x 384, half of them called cats and half dogs."""
    jpegs(folder, [f"train/{name}s/{name}.{number}.jpg" for name in ("cat", "dog") for number in range(300)], 384, 512)


def book(folder: Path) -> None:
    """The files of the book's first chapter: 2,000 JPEG files of 32 x 32, and 2,000 reviews with a label, in one."""
    kinds = "airplane", "automobile"
    files = [f"data/cifar2/train/{kind}/{number}.jpg" for kind in kinds for number in range(1000)]
    jpegs(folder, files, 32, 32)
    (folder / "here").mkdir()
    (folder / "data/imdb").mkdir()
    lines = [f"{number % 2}\t{review}\n" for number, review in enumerate(_reviews(2000))]
    (folder / "data/imdb/train.csv").write_text("".join(lines))


def imdb(folder: Path) -> None:
    """2,000 reviews of some 230 words, a file each, half of them in a folder for the good."""
    for number, review in enumerate(_reviews(2000)):
        file = folder / "train" / ("pos", "neg")[number % 2] / f"{number}_5.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(review)


def csv(folder: Path) -> None:
    """Ten files of 2,048 letters each: two names, ten numbers, and the 400 pixels of a letter."""
    (folder / "fonts").mkdir(parents=True)
    draw = np.random.default_rng(0)
    names = ["font", "fontVariant", *(f"c{number}" for number in range(10))]
    head = ",".join([*names, *(f"r{row}c{column}" for row in range(20) for column in range(20))])
    for font in range(10):
        rows = draw.integers(0, 256, (2048, 410))
        lines = [",".join(["FONT", "scanned", *map(str, row)]) for row in rows]
        (folder / "fonts" / f"FONT{font}.csv").write_text("\n".join([head, *lines]) + "\n")


def mels(folder: Path) -> None:
    """400 utterances of 1 to 6 s as 80 mel bands, and their phonemes."""
    draw = np.random.default_rng(0)
    folder.mkdir(parents=True)
    lines = []
    for number in range(400):
        frames = int(draw.uniform(1, 6) * 22050 / 256)
        np.save(folder / f"{number:04}.npy", draw.normal(0, 1, (frames, 80)).astype("float32"))
        lines.append(f"{number:04}|{''.join(draw.choice(list('aeioubdfklmnprstz '), frames // 6))}\n")
    (folder / "metadata.csv").write_text("".join(lines))


def voc(folder: Path) -> None:
    """256 JPEG files of 496 x 368 with one to four boxes each, as files of Pascal VOC 2007 lie."""
    draw = np.random.default_rng(0)
    jpegs(folder / "VOC2007/JPEGImages", [f"{number:06}.jpg" for number in range(256)], 368, 496)
    (folder / "VOC2007/Annotations").mkdir()
    for number in range(256):
        boxes = np.sort(draw.integers(1, 368, (draw.integers(1, 5), 2, 2)), axis=1)
        sides = "<xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax>"
        objects = [f"<object><name>cat</name><bndbox>{sides.format(*box.ravel())}</bndbox></object>" for box in boxes]
        text = f"<annotation>{''.join(objects)}</annotation>"
        (folder / f"VOC2007/Annotations/{number:06}.xml").write_text(text)


def ratings(folder: Path) -> None:
    """24,000 and 2,400 ratings of films with the 27 columns of the project's samples, where Keras keeps files."""
    (folder / ".keras/datasets").mkdir(parents=True)
    draw = np.random.default_rng(0)
    whole = "movieId userId rating timestamp label releaseYear movieRatingCount userRatingCount userAvgReleaseYear"
    films = [f"userRatedMovie{number}" for number in range(1, 6)]
    shares = ["movieAvgRating", "movieRatingStddev", "userReleaseYearStddev", "userAvgRating", "userRatingStddev"]
    names = [
        *whole.split(),
        *films,
        *shares,
        *(f"{of}Genre{n}" for of, last in (("movie", 4), ("user", 6)) for n in range(1, last)),
    ]
    limits = {"userId": 30001, "rating": 6, "label": 2, "releaseYear": 2020}
    for file, rows in (("trainingSamples", 24000), ("testSamples", 2400)):
        columns = [draw.integers(0, limits.get(name, 1001), rows) for name in [*whole.split(), *films]]
        columns += [draw.uniform(0, 5, rows).round(2) for _ in shares]
        columns += [draw.choice(["Drama", "Comedy", "Action", ""], rows) for _ in range(8)]
        lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
        (folder / f".keras/datasets/{file}.csv").write_text("\n".join([",".join(names), *lines]) + "\n")


def articles(folder: Path) -> None:
    """4,000 texts of 100 to 500 Chinese signs with a label, a line of JSON each, and the signs as a vocabulary."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    signs = [chr(0x4E00 + number) for number in range(8000)]
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *signs]))
    texts = ("".join(draw.choice(signs, draw.integers(100, 500))) for _ in range(4000))
    lines = [json.dumps({"label": str(number % 119), "sentence": text}) for number, text in enumerate(texts)]
    (folder / "train.json").write_text("\n".join(lines) + "\n")


def _reviews(count: int) -> Iterator[str]:
    """Some 230 of 20,000 words, the first of which are the most frequent, with a break here and there."""
    draw = np.random.default_rng(0)
    words = ["".join(draw.choice(list("abcdefghijklmnoprstuvwy"), draw.integers(2, 10))) for _ in range(20000)]
    for _ in range(count):
        chosen = [words[number % len(words)] for number in draw.zipf(1.2, draw.integers(100, 360))]
        yield ". ".join(" ".join(chosen[at : at + 12]) for at in range(0, len(chosen), 12)).replace(". ", ".<br />", 2)


def jpegs(folder: Path, files: Sequence[str], height: int, width: int) -> None:
    for name, image in zip(files, _images(len(files), height, width), strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(image)


def _images(count: int, height: int, width: int) -> Iterator[bytes]:
    """JPEG images of coarse blocks with noise."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    draw = np.random.default_rng(0)
    for _ in range(count):
        coarse = draw.integers(0, 256, (height // 16, width // 16, 3), "uint8")
        image = np.clip(np.kron(coarse, np.ones((16, 16, 1))) + draw.normal(0, 8, (height, width, 3)), 0, 255)
        yield tf.io.encode_jpeg(image.astype("uint8"), quality=90).numpy()


MADE: dict[str, Callable[[Path], None]] = {
    one.__name__: one
    for one in (
        *(flowers, speech, ljspeech, horses, facades, boxes, faces, pets, book, imdb, csv, mels),
        *(voc, ratings, articles),
    )
}


def make(name: str, folder: Path) -> None:
    """Make a data set in ``folder/name`` if it is not there, whole."""
    if (folder / name).exists():
        return
    part = folder / f"{name}.part"
    MADE[name](part)
    part.rename(folder / name)
