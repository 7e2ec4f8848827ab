"""What loaders of speech projects do with files, audio and text, traced: the values of the libraries themselves."""

from __future__ import annotations

import io
import os
import pathlib
import re
import sys
import types
import wave

import numpy as np
import pytest
import scipy.fft
import scipy.io.wavfile
import scipy.signal
import soundfile
import tensorflow as tf

from tests.tf.fixes.native.traced import refused, same
from xttsbench.fixes.native.trace import trace

pytestmark = pytest.mark.tf

RATE = 8000
SYMBOLS = "_ abcdefghijklmnopqrstuvwxyzäß.,!?"
IDS = {symbol: number for number, symbol in enumerate(SYMBOLS)}
WORDS = {"one": 1, "two": 2, "drei": 3}
SPEAKERS = {"ann": 4, "bob": 7}
TEXTS = [b"One, two; three!", b"a", "Größe  drei\u2003Üb\n".encode(), b" x_y.Z "]


@pytest.fixture
def folder(tmp_path):
    """Three utterances of other lengths: audio, and arrays in several formats."""
    rng = np.random.default_rng(5)
    for number, length in enumerate((3000, 4111, 5222)):
        audio = (rng.normal(size=length) * np.linspace(0, 3000, length)).astype(np.int16)
        with wave.open(str(tmp_path / f"{number:03d}.wav"), "wb") as file:
            file.setnchannels(1), file.setsampwidth(2), file.setframerate(RATE)
            file.writeframes(audio.tobytes())
        scipy.io.wavfile.write(tmp_path / f"s{number:03d}.wav", RATE, np.stack([audio, audio // 2], 1))
        np.save(tmp_path / f"{number:03d}.npy", rng.normal(size=(length // 100, 5)).astype(np.float32))
        np.save(tmp_path / f"by_columns_{number}.npy", np.asfortranarray(rng.integers(0, 99, size=(number + 2, 3))))
        (tmp_path / f"{number:03d}.raw").write_bytes(b"head" + audio.tobytes())
        (tmp_path / f"{number:03d}.txt").write_bytes(f"line {number}\r\nand more\n".encode())
    return tmp_path


def paths(folder, pattern):
    return [(str(one).encode(),) for one in sorted(folder.glob(pattern))]


# Files


def load_npy(path):
    mel = np.load(path.decode("utf-8"))
    return (mel - mel.mean(0)) / mel.std(0), mel.T, np.int64(len(mel))


def load_in_pieces(path):
    with open(path, "rb") as file:
        file.seek(4)
        pcm = np.frombuffer(file.read(), dtype=np.int16)
    return pcm.astype(np.float32) / 32768.0, np.fromfile(path, np.uint8, count=4), np.frombuffer(b"ab", np.uint8)


def load_by_columns(path):
    with open(path, "rb") as file:
        return np.load(io.BytesIO(file.read()))


def load_by_number(number):
    return np.load(os.path.join(ROOT["of"], f"{number:03d}.npy")), np.load("%s/%03d.npy" % (ROOT["of"], int(number)))  # noqa: UP031


ROOT = {}


def test_arrays_are_read_as_numpy_reads_them(folder, monkeypatch):
    monkeypatch.setitem(ROOT, "of", str(folder))
    same(load_npy, *paths(folder, "0*.npy"))
    same(load_by_columns, *paths(folder, "by_columns*.npy"))
    same(load_in_pieces, *paths(folder, "*.raw"))
    same(load_by_number, (np.int64(0),), (np.int64(2),))


def test_a_file_of_another_kind_is_an_error_and_not_other_numbers(folder):
    traced = same(load_npy, *paths(folder, "0*.npy"))
    np.save(folder / "double.npy", np.ones((4, 5)))
    np.save(folder / "flat.npy", np.ones(4, np.float32))
    scipy.io.wavfile.write(folder / "float.wav", RATE, np.ones(9, np.float32))
    for name in ("double.npy", "flat.npy"):
        with pytest.raises(tf.errors.InvalidArgumentError):
            traced(tf.constant(str(folder / name)))
    traced = same(by_soundfile, *paths(folder, "0*.wav"))
    for name in ("float.wav", "s000.wav"):
        with pytest.raises(tf.errors.InvalidArgumentError):
            traced(tf.constant(str(folder / name)))


def load_from_archive(path):
    with np.load(path.decode()) as data:
        extra = data["extra"] if "extra" in data.files else data["mel"][0]
        return data["mel"], extra.sum(), data["ids"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_are_read_by_name_and_others_are_an_error(tmp_path, save):
    rng = np.random.default_rng(2)
    for number in (3, 40, 500):
        mel = rng.normal(size=(number, 4)).astype(np.float32)
        save(tmp_path / f"{number}.npz", mel=mel, extra=mel[0], ids=np.arange(number, dtype=np.int32))
    traced = same(load_from_archive, *paths(tmp_path, "*.npz"))
    save(tmp_path / "other.npz", extra=np.ones(3, np.float32), mel=mel, ids=np.arange(3, dtype=np.int32))
    with pytest.raises(tf.errors.InvalidArgumentError):
        traced(tf.constant(str(tmp_path / "other.npz")))
    (one, other) = (str(tmp_path / name).encode() for name in ("3.npz", "other.npz"))
    refused(load_from_archive, "several sets of arrays", (one,), (other,))


def test_what_no_recorded_file_explains_is_refused(folder):
    np.save(folder / "other.npy", np.ones((4, 5)))
    (path,) = paths(folder, "000.npy")[0]
    refused(load_npy, "several dtypes or ranks", (path,), (str(folder / "other.npy").encode(),))
    refused(lambda p: open(p, "a"), "opens a file in the mode 'a'", (path,))  # noqa: SIM115


# Audio


def by_soundfile(path):
    audio, rate = soundfile.read(path.decode())
    short, _ = soundfile.read(path, dtype="float32", stop=100)
    return audio, np.int64(rate), short, soundfile.read(path, dtype="int16", always_2d=True)[0]


def by_scipy(path):
    rate, audio = scipy.io.wavfile.read(path.decode())
    return audio, (audio / 32768.0).astype(np.float32), np.int32(rate)


def by_wave(path):
    with wave.open(path.decode("utf-8"), "rb") as file:
        count = file.getnframes()
        pcm = np.frombuffer(file.readframes(count), dtype=np.int16)
        return pcm.astype(np.float32).reshape(-1, file.getnchannels()), np.float32(count / file.getframerate())


def test_audio_is_read_as_the_libraries_read_it(folder):
    for function in (by_soundfile, by_scipy, by_wave):
        same(function, *paths(folder, "0*.wav"), tolerance=0)
    for function in (by_scipy, by_wave):
        same(function, *paths(folder, "s0*.wav"), tolerance=0)


def emphasised(path):
    audio, rate = soundfile.read(path.decode())
    high = scipy.signal.lfilter([1, -0.97], [1], audio)
    frequencies, times, spectrum = scipy.signal.stft(high, fs=rate, nperseg=200, noverlap=120)
    return high, times, np.abs(spectrum), frequencies, scipy.fft.dct(np.abs(spectrum).T[:, :40], norm="ortho")[:, :13]


def test_filters_and_spectra_are_those_of_scipy(folder):
    same(emphasised, *paths(folder, "0*.wav"))


def test_filters_with_feedback_and_audio_of_24_bits_are_refused(folder):
    soundfile.write(folder / "deep.wav", np.zeros(100), RATE, subtype="PCM_24")
    soundfile.write(folder / "packed.flac", np.zeros(100), RATE)
    refused(by_soundfile, "24 bits", (str(folder / "deep.wav").encode(),))
    refused(by_soundfile, "not WAV of 16 bits", (str(folder / "packed.flac").encode(),))

    def back(path):
        return scipy.signal.lfilter([1], [1, -0.97], soundfile.read(path)[0])

    refused(back, "filters with feedback", *paths(folder, "000.wav"))


# Text


def cleaned(text):
    text = text.decode("utf-8").lower().replace("ß", "ss").strip()
    return (
        re.sub(r"\s+", " ", text),
        f"<{text}>{text!s}",
        text[:-2],
        text[1:3],
        np.int64(len(text)),
        " ".join(text.split()),
    )


def with_comprehension(text):
    ids = [IDS[c] for c in text.decode().lower() if c in IDS]
    return np.array(ids, dtype=np.int32), np.asarray([1] + ids + [2]), np.int64(len(ids))  # noqa: RUF005


def with_loop(text):
    ids = [0]
    for letter in text.decode("utf-8"):
        if letter in IDS and letter != "_":
            ids.append(IDS[letter])
    ids += [IDS.get(c, 33) for c in text.decode()]
    ids.append(1)
    return np.array(ids)


def by_code(text):
    return np.array([ord(c) - 32 for c in text.decode()], np.int32), np.array(list(map(ord, text.decode("utf-8"))))


def by_place(text):
    return np.array([SYMBOLS.index(c) for c in text.decode().lower() if not (c not in SYMBOLS or c == " ")])


def test_text_becomes_the_same_text_and_numbers():
    for function in (cleaned, with_comprehension, with_loop, by_code, by_place):
        same(function, *((one,) for one in TEXTS))


def test_text_in_quotes_is_refused():
    refused(lambda text: f"{text.decode()!r}", "as text", (TEXTS[0],))


def of_words(line):
    name, speaker, text = line.decode().split("|")
    words = np.array([WORDS[word] for word in text.split(" ")], np.int64)
    return np.int64(SPEAKERS[speaker]), words, np.int64(int(name.split("_")[1])), name + ".npy"


def test_words_and_names_are_looked_up():
    traced = same(of_words, (b"utt_07|ann|one two",), (b"utt_12|bob|drei",))
    for line in (b"a_1|carl|one", b"a_1|ann|four"):
        with pytest.raises(tf.errors.InvalidArgumentError):
            traced(tf.constant(line))
    traced = same(lambda text: np.array([IDS[c] for c in text.decode()]), (b"abc",), (b"z",))
    for text in ("A", "語"):
        with pytest.raises(tf.errors.InvalidArgumentError):
            traced(tf.constant(text))


def of_paths(path):
    path = path.decode()
    root, end = os.path.splitext(path)
    given = pathlib.Path(path)
    beside = pathlib.Path("/data") / "mels" / f"{given.stem}.npy"
    return (
        *(root, end, os.path.basename(path), os.path.dirname(path), given.name, str(given.with_suffix(".npy"))),
        *(str(beside), str(given.parent / "x"), os.path.join("/data/", os.path.basename(path)), given.suffix),
        *("{}/{}".format("a", given.stem), path.replace("wavs", "m")),
    )


def test_paths_are_taken_apart_and_made():
    same(of_paths, (b"/d.ir/wavs/a.b.wav",), (b"/d/.hidden",), (b"/x/wavs/plain",))


def of_a_tensor(path):
    raw = tf.io.read_file(path)
    whole = np.load(path.numpy().decode("utf-8"))
    return tf.strings.length(raw), whole.sum(axis=0)


def test_a_function_of_tensors_reads_files_too(folder):
    (path,) = paths(folder, "000.npy")[0]
    traced = trace(
        of_a_tensor, [tf.TensorSpec([], tf.string)], [tf.int32, tf.float32], tensors=True, seen=[(tf.constant(path),)]
    )
    length, total = traced(tf.constant(path))
    assert length == os.path.getsize(path)
    np.testing.assert_allclose(total, np.load(path).sum(0), rtol=1e-5)


# librosa, where it is installed


def of_librosa(path):
    import librosa

    audio, rate = librosa.load(path.decode(), sr=RATE)
    mel = librosa.feature.melspectrogram(y=audio, sr=rate, n_fft=512, hop_length=128, n_mels=40, fmin=50)
    return (
        *(audio, np.abs(librosa.stft(audio, n_fft=400, hop_length=100, win_length=300)), mel),
        *(librosa.power_to_db(mel, ref=np.max), librosa.amplitude_to_db(np.abs(librosa.stft(audio)))),
        *(librosa.feature.mfcc(y=audio, sr=rate, n_mfcc=13), librosa.feature.rms(y=audio)),
        *(librosa.effects.preemphasis(audio), librosa.util.fix_length(audio, size=4000), librosa.util.normalize(audio)),
        librosa.util.frame(audio, frame_length=200, hop_length=80),
        *librosa.effects.trim(audio, top_db=20, frame_length=512, hop_length=128),
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_features_are_those_of_librosa(folder):
    pytest.importorskip("librosa")
    same(of_librosa, *paths(folder, "0*.wav"), tolerance=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_audio_at_another_rate_is_refused_for_it_is_resampled(folder):
    pytest.importorskip("librosa")
    import librosa

    why = "changes the rate from 8000 Hz to 22050"
    refused(lambda path: librosa.load(path.decode())[0], why, *paths(folder, "000.wav"))


STAND_IN = """
import numpy as np
import scipy.signal

def get_window(window, length, *, fftbins=True):
    return scipy.signal.get_window(window, length, fftbins=fftbins)

def mel(*, sr, n_fft, n_mels=128):
    return np.abs(np.sin(np.arange(n_mels)[:, None] + np.arange(n_fft // 2 + 1) * sr)).astype(np.float32)

def stft(y, *, n_fft=2048, hop_length=None):
    padded = np.pad(y, n_fft // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, n_fft)[:: hop_length or n_fft // 4]
    return np.fft.rfft(frames * get_window("hann", n_fft)).T.astype(np.complex64)

def melspectrogram(*, y, sr, n_fft=2048, hop_length=512, n_mels=128):
    return mel(sr=sr, n_fft=n_fft, n_mels=n_mels) @ np.abs(stft(y, n_fft=n_fft, hop_length=hop_length)) ** 2

def power_to_db(S, *, ref=1.0, amin=1e-10, top_db=80.0):
    found = 10 * np.log10(np.maximum(amin, S)) - 10 * np.log10(np.maximum(amin, ref(S)))
    return np.maximum(found, found.max() - top_db)

def preemphasis(y, *, coef=0.97):
    return np.append(y[0] + 2 * y[0] - y[1], y[1:] - np.float32(coef) * y[:-1])
"""
"""What some functions of librosa compute, for machines without it, in a file that is not the user's."""


def with_stand_in(path):
    import librosa.effects

    audio, rate = soundfile.read(path, dtype="float32")
    mel = librosa.feature.melspectrogram(y=librosa.effects.preemphasis(audio), sr=rate, n_fft=256, n_mels=20)
    return librosa.power_to_db(mel, ref=np.max), np.abs(librosa.stft(audio, n_fft=256, hop_length=100))


def test_functions_of_librosa_are_told_by_their_public_names(folder, monkeypatch):
    modules = {name: types.ModuleType(name) for name in ("librosa", *(f"librosa.{one}" for one in PARTS))}
    for name, module in modules.items():
        exec(compile(STAND_IN, "/usr/lib/python3/site-packages/librosa.py", "exec"), module.__dict__)
        monkeypatch.setitem(sys.modules, name, module)
    for name in PARTS:
        setattr(modules["librosa"], name, modules[f"librosa.{name}"])
    same(with_stand_in, *paths(folder, "0*.wav"), tolerance=1e-5)


PARTS = ("feature", "filters", "effects", "util")
