"""Finds the sound files that a listing names, in a data set's directory and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from xttsbench.xtts.data.listing import SOUND_SUFFIXES

_FOLDERS: Final = ("wavs", "clips")
"""Where data sets keep their sound without saying so in each line: LJSpeech and Common Voice."""


class SoundFolder:
    """Finds sound files in a directory, and nowhere else."""

    def __init__(self, source: Path) -> None:
        self.root = os.path.abspath(source)
        self._real_root = os.path.realpath(source)
        self._real: dict[str, str] = {}
        self._beside, self._beside_root = source, self.root

    def find(self, audio: str, beside: Path) -> tuple[str, str] | str:
        """Return a clip's id and file, or why there is none.

        Args:
            audio: an id or a path, as listed: relative to the directory, its ``wavs/`` or ``clips/``, or the listing's
                directory. Where WAV and another format are there, it is the WAV file.
            beside: the listing's directory.
        """
        if not audio.isprintable():
            return f"the name {audio!r} holds control characters"
        if "\\" in audio and "/" not in audio:
            audio = audio.replace("\\", "/")  # listed under Windows
        if beside != self._beside:
            self._beside, self._beside_root = beside, os.path.abspath(beside)
        bases = [os.path.join(self.root, folder) for folder in _FOLDERS]
        bases.insert(0 if "/" in audio else len(bases), self.root)  # a path most likely begins at the root
        if _is_inside(self._beside_root, self.root):
            bases.append(self._beside_root)
        stem, ending = os.path.splitext(audio)
        if ending.lower() not in SOUND_SUFFIXES:  # a dot in an id, or none
            stem, ending = audio, ""
        # What is listed as another format may have been converted since.
        candidates = [audio] if ending.lower() == ".wav" else [f"{stem}.wav", f"{stem}.WAV", audio]
        outside = False
        for base in bases:
            for name in candidates:
                path = os.path.normpath(os.path.join(base, name))
                if not _is_inside(path, self.root):
                    outside = True
                elif os.path.isfile(path):
                    if not _is_inside(self._realpath(path), self._real_root):
                        return f"{audio!r} leads out of the directory, through a link"
                    return self._id(path), path
        if outside:
            return f"{audio!r} leads out of the directory"
        for base in bases:
            for suffix in SOUND_SUFFIXES:
                if os.path.isfile(os.path.normpath(os.path.join(base, stem + suffix))):
                    return f"there is no WAV file for {audio!r}, but a {suffix} file; convert it to WAV"
        return f"there is no file {audio!r}" + ("" if candidates == [audio] else f" nor {candidates[0]!r}")

    def _realpath(self, path: str) -> str:
        """Resolve links; of a directory once, since a data set has many files in few."""
        if os.path.islink(path):
            return os.path.realpath(path)
        parent, name = os.path.split(path)
        if parent not in self._real:
            self._real[parent] = os.path.realpath(parent)
        return os.path.join(self._real[parent], name)

    def _id(self, path: str) -> str:
        """Return the path inside the directory as an id: ``wavs/anna/01.wav`` becomes ``anna-01``."""
        relative = os.path.splitext(path[len(os.path.join(self.root, "")) :])[0]
        for folder in _FOLDERS:
            relative = relative.removeprefix(f"{folder}/")
        return relative.replace("/", "-").replace("|", "-").strip()


def _is_inside(path: str, root: str) -> bool:
    return path.startswith(os.path.join(root, ""))
