"""What the index of a million clips holds in memory: the goal of reading metadata in columns.

A directory with that many lines of metadata and as many WAV files, hard links to a few, is made; a process of its own
reads it, and the peak of its resident set is taken.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from xttsbench.xtts.wav import write_wav

GOAL_MB = 1000.0
CLIPS = 1_000_000
_FILES = 32  # file systems limit the links to one file, ext4 to 65,000

_READ = """
import json, sys, time
from pathlib import Path
from xttsbench.xtts.data.speech_data import read_speech_data

def peak_mb():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6

before, began = peak_mb(), time.perf_counter()
data = read_speech_data(Path(sys.argv[1]), sample_rate_hz=int(sys.argv[2]), split="all")
took = time.perf_counter() - began
print(json.dumps({"clips": len(data), "peak_mb": round(peak_mb(), 1), "before_mb": round(before, 1),
                  "seconds": round(took, 1)}))
"""


def measure(clips: int, sample_rate_hz: int) -> dict[str, Any]:
    """Make the directory, read it, and return the peak in megabytes, with the goal."""
    with tempfile.TemporaryDirectory(prefix="index-") as folder:
        wavs = Path(folder, "wavs")
        wavs.mkdir()
        rng = np.random.default_rng(0)
        sources = [wavs / f"clip-{number:07d}.wav" for number in range(min(_FILES, clips))]
        for source in sources:
            samples = rng.uniform(-0.5, 0.5, int(rng.integers(1000, 2000))).astype(np.float32)
            write_wav(source, samples, sample_rate_hz)
        with open(Path(folder, "metadata.csv"), "w", encoding="utf-8") as metadata:
            for number in range(clips):
                if number >= len(sources):
                    os.link(sources[number % len(sources)], wavs / f"clip-{number:07d}.wav")
                # About the length of LJSpeech's mean line.
                text = f"the {number}th of many sentences that are a line of text and no more than that, in words"
                metadata.write(f"clip-{number:07d}|{text}|{text}\n")
        began = time.perf_counter()
        command = [sys.executable, "-c", _READ, folder, str(sample_rate_hz)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        result: dict[str, Any] = json.loads(done.stdout)
    return {
        "goal": {"peak_mb": GOAL_MB},
        "value": {"peak_mb": result["peak_mb"]},
        "met": result["peak_mb"] < GOAL_MB and result["clips"] == clips,
        "process_s": round(time.perf_counter() - began, 1),
        **result,
    }
