"""Where data that the project makes itself are kept: one place per user, and the default set in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import platformdirs

MAKER_VERSION: Final = 3
"""Version of the bytes that :mod:`xttsbench.xtts.data.make` writes; part of a set's name, so that old sets are left."""

DEFAULT_CLIPS: Final = 256
DEFAULT_MIN_S: Final = 1.0
DEFAULT_MAX_S: Final = 10.0
DEFAULT_SEED: Final = 0
DEFAULT_SPEAKERS: Final = 4


def cache_directory() -> Path:
    """Return where made data are kept, as an absolute path: ``XTTSBENCH_CACHE``, else the user's cache directory."""
    return Path(os.environ.get("XTTSBENCH_CACHE") or platformdirs.user_cache_dir("xttsbench")).absolute()


def made_data(clips: int, seed: int, min_s: float, max_s: float, speakers: int = DEFAULT_SPEAKERS) -> Path:
    """Return where the set that these arguments make is kept; it need not be there yet."""
    fewer = "" if speakers == DEFAULT_SPEAKERS else f"-{speakers}speakers"
    return cache_directory() / f"speech-v{MAKER_VERSION}-{clips}x{min_s:g}-{max_s:g}s-seed{seed}{fewer}"


def default_data() -> Path:
    """Return where the set that every command without ``--data`` uses is kept; it need not be there yet."""
    return made_data(DEFAULT_CLIPS, DEFAULT_SEED, DEFAULT_MIN_S, DEFAULT_MAX_S)
