"""Processes that are forked from one that has imported what they need: for most, that takes longer than their work."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from xttsbench.xtts.data.pool import spawning

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.unit.training.writing", "tests.unit.xtts.data.caching"])


def start(work: Callable[..., None], *arguments: Any) -> tuple[Any, Connection]:
    """A process that does the work with one end of a pipe, and the other end of it."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=work, args=(theirs, *arguments))
    with spawning():
        process.start()
    theirs.close()
    return process, ours
