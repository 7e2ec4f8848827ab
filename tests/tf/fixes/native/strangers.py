"""Features of speech and text as projects write them that have never heard of TensorFlow's ops."""

# ruff: noqa: B905, N803, RUF007, RUF046, SIM108, UP031 - it is written as it is found

from __future__ import annotations

import decimal
import math
import re

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from scipy.fftpack import dct
from scipy.signal import lfilter

RATE = 16000


def round_half_up(number):
    return int(decimal.Decimal(number).quantize(decimal.Decimal("1"), rounding=decimal.ROUND_HALF_UP))


def to_mel(hz):
    return 2595 * np.log10(1 + hz / 700.0)


def to_hz(mel):
    return 700 * (10 ** (mel / 2595.0) - 1)


def filter_bank(count=26, nfft=512, rate=RATE, low=0, high=None):
    high = high or rate / 2
    assert high <= rate / 2, "too high"
    points = np.linspace(to_mel(low), to_mel(high), count + 2)
    bins = np.floor((nfft + 1) * to_hz(points) / rate)
    bank = np.zeros([count, nfft // 2 + 1])
    for j in range(count):
        for i in range(int(bins[j]), int(bins[j + 1])):
            bank[j, i] = (i - bins[j]) / (bins[j + 1] - bins[j])
        for i in range(int(bins[j + 1]), int(bins[j + 2])):
            bank[j, i] = (bins[j + 2] - i) / (bins[j + 2] - bins[j + 1])
    return bank


def framed(sig, length, step, window=lambda n: np.ones((n,))):
    count = len(sig)
    length, step = int(round_half_up(length)), int(round_half_up(step))
    if count <= length:
        frames = 1
    else:
        frames = 1 + int(math.ceil((1.0 * count - length) / step))
    padded = int((frames - 1) * step + length)
    sig = np.concatenate((sig, np.zeros((padded - count,))))
    indices = np.tile(np.arange(0, length), (frames, 1)) + np.tile(np.arange(0, frames * step, step), (length, 1)).T
    indices = np.array(indices, dtype=np.int32)
    return sig[indices] * np.tile(window(length), (frames, 1))


def lifted(cepstra, L=22):
    if L > 0:
        _, count = np.shape(cepstra)
        return (1 + (L / 2.0) * np.sin(np.pi * np.arange(count) / L)) * cepstra
    return cepstra


def mfcc(signal, numcep=13, nfft=512):
    signal = np.append(signal[0], signal[1:] - 0.97 * signal[:-1])
    frames = framed(signal, 0.025 * RATE, 0.01 * RATE, np.hamming)
    power = 1.0 / nfft * np.square(np.absolute(np.fft.rfft(frames, nfft)))
    energy = np.sum(power, 1)
    energy = np.where(energy == 0, np.finfo(float).eps, energy)
    feat = np.dot(power, filter_bank().T)
    feat = np.where(feat == 0, np.finfo(float).eps, feat)
    feat = dct(np.log(feat), type=2, axis=1, norm="ortho")[:, :numcep]
    feat = lifted(feat)
    feat[:, 0] = np.log(energy)
    return feat.astype(np.float32)


class Config:
    n_fft = 512
    hop = 128
    ref_db, max_db = 20, 100
    r = 4
    max_frames = 64


hp = Config()
MEL = filter_bank(40).astype(np.float32)
WIN = np.hanning(hp.n_fft + 1)[:-1].astype(np.float32)


def mel_spectrogram(wav):
    y = lfilter([1, -0.97], [1], wav)
    y = np.pad(y, hp.n_fft // 2, mode="reflect").astype(np.float32)
    windows = sliding_window_view(y, hp.n_fft)[:: hp.hop] * WIN
    mag = np.abs(np.fft.rfft(windows, axis=-1)).T
    mel = np.dot(MEL, mag)
    mel = 20 * np.log10(np.maximum(1e-5, mel))
    mel = np.clip((mel - hp.ref_db + hp.max_db) / hp.max_db, 1e-8, 1)
    mel = mel.T.astype(np.float32)
    t = mel.shape[0]
    paddings = hp.r - (t % hp.r) if t % hp.r != 0 else 0
    mel = np.pad(mel, [[0, paddings], [0, 0]], mode="constant")
    if mel.shape[0] > hp.max_frames:
        mel = mel[: hp.max_frames]
    reduced = mel[:: hp.r, :]
    mask = np.zeros(hp.max_frames, dtype=np.float32)
    mask[: len(mel)] = 1.0
    return mel, reduced, mask


def energy_contour(y, size=512, hop=128):
    y = y.astype(np.float64)
    count = 1 + (len(y) - size) // hop
    frames = as_strided(y, shape=(count, size), strides=(y.strides[0] * hop, y.strides[0]))
    energy = np.sqrt(np.mean(frames**2, axis=1))
    crossings = np.mean(np.abs(np.diff(np.sign(frames), axis=1)) > 0, axis=1)
    low = energy < np.percentile(energy, 20)
    voiced = np.where(~low)[0]
    if len(voiced) > 1:
        energy = np.interp(np.arange(len(energy)), voiced, energy[voiced])
    smooth = np.convolve(energy, np.ones(5) / 5, mode="same")
    return smooth.astype(np.float32), crossings.astype(np.float32), np.int64(len(voiced))


def average_by_duration(x, durs):
    ends = np.cumsum(np.pad(durs, (1, 0)))
    out = np.zeros((durs.shape[0],), dtype=np.float32)
    for i, (start, end) in enumerate(zip(ends[:-1], ends[1:])):
        values = x[start:end][np.where(x[start:end] != 0.0)[0]]
        out[i] = np.mean(values) if len(values) > 0 else 0.0
    return out


def trimmed(wav, top_db=30, size=256, hop=64):
    peak = np.max(np.abs(wav))
    threshold = peak * 10 ** (-top_db / 20)
    start = 0
    while start + size < len(wav) and np.max(np.abs(wav[start : start + size])) < threshold:
        start += hop
    end = len(wav)
    while end - size > start and np.max(np.abs(wav[end - size : end])) < threshold:
        end -= hop
    return wav[start:end]


ABBREVIATIONS = [
    (re.compile("\\b%s\\." % x[0], re.IGNORECASE), x[1])
    for x in [("mrs", "misess"), ("mr", "mister"), ("dr", "doctor"), ("st", "saint")]
]
NUMBERS = {"1": "one", "2": "two", "3": "three"}
LETTERS = {"é": "e", "ü": "ue", "—": "-"}
SYMBOLS = ["_", "~", *"abcdefghijklmnopqrstuvwxyz '-,.!?"]
SYMBOL_TO_ID = {s: i for i, s in enumerate(SYMBOLS)}
WHITE = re.compile(r"\s+")


def cleaned(text):
    text = "".join(LETTERS.get(c, c) for c in text)
    text = text.lower()
    for regex, replacement in ABBREVIATIONS:
        text = re.sub(regex, replacement, text)
    text = " ".join(NUMBERS.get(word, word) for word in text.split())
    text = re.sub(r"(\d+)(st|nd|rd|th)", r"\1 \2", text)
    text = text.translate(str.maketrans({"“": "", "”": "", ";": ","}))
    return re.sub(WHITE, " ", text).strip()


def ordinals(text):
    return re.sub(r"(\d+)(st|nd|rd|th)\b", r"\1 \2", text.decode("utf-8"))


def ids(text, length=60):
    text = cleaned(text.decode("utf-8"))
    sequence = []
    for s in text:
        if s in SYMBOL_TO_ID and s != "_":
            sequence.append(SYMBOL_TO_ID[s])
    sequence.append(SYMBOL_TO_ID["~"])
    sequence = sequence[:length] + [0] * (length - len(sequence))
    return np.array(sequence, dtype=np.int32)


def ids_unknown(text):
    out = []
    for ch in text.decode("utf-8").lower():
        if ch in SYMBOL_TO_ID:
            out.append(SYMBOL_TO_ID[ch])
        else:
            out.append(1)
    return np.asarray(out, dtype=np.int64), np.int64(len(out))
