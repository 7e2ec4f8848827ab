"""The line of the user's code in which a Python function spends its time, by samples of its threads' stacks."""

from __future__ import annotations

import linecache
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Final

from xttsbench.owners import owner
from xttsbench.pipeline.definitions import tree_of
from xttsbench.pipeline.python.rounds import carried
from xttsbench.records.base import Location
from xttsbench.records.pipeline import SlowLine
from xttsbench.stacks import stacks

_INTERVAL_S: Final = 0.005  # seldom enough that what is timed meanwhile is not slowed down
_SWITCH_S: Final = 0.0002  # or only calls that leave the interpreter lock by themselves would be seen
_MAIN: Final = 0.6  # share of the samples from which a line is the one that the time goes into
_LEAST: Final = 20  # samples below which nothing is said
_Stack = tuple[tuple[str, int], ...]  # file and line of each frame of the user's, outermost first


class Lines:
    """Samples of the calls of one function: its threads, while they are in it, and what their stacks were."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self._weights: dict[tuple[_Stack, bool], float] = defaultdict(float)
        self._samples = 0

    def add(self, frame: FrameType | None, seconds: float) -> None:
        """Count a stack, up to the frame of ours that calls the user's code."""
        stack, of_ops = list[tuple[str, int]](), False
        while frame is not None and (whose := owner(frame.f_code.co_filename)) != "ours":
            if whose in ("user", "workload", "typed"):
                stack.insert(0, (frame.f_code.co_filename, frame.f_lineno))
            of_ops |= whose == "framework" and not stack
            frame = frame.f_back
        if stack:  # else TensorFlow takes over what was given back
            self._weights[tuple(stack), of_ops] += seconds
            self._samples += 1

    @property
    def line(self) -> SlowLine | None:
        """The innermost line that most of the time passes through; ``None`` where no line has so much of it."""
        total_s = sum(self._weights.values())
        left: Mapping[tuple[_Stack, bool], float] = self._weights
        found: SlowLine | None = None
        for depth in range(max((len(stack) for stack, _ in left), default=0) if self._samples >= _LEAST else 0):
            of_line: dict[tuple[str, int], float] = defaultdict(float)
            for (stack, _), weight_s in left.items():
                if len(stack) > depth:
                    of_line[stack[depth]] += weight_s
            top = max(of_line, key=lambda line: of_line[line], default=None)
            if top is None or of_line[top] < _MAIN * total_s:
                break
            left = {key: weight_s for key, weight_s in left.items() if key[0][depth : depth + 1] == (top,)}
            ops_s = sum(weight_s for (_, of_ops), weight_s in left.items() if of_ops)
            found = SlowLine(
                location=Location(file=top[0], line=top[1]),
                text=linecache.getline(*top).strip(),
                share=of_line[top] / total_s,
                ops_share=ops_s / of_line[top],
                carried=carried(tree_of(top[0]), top[1]),
            )
        return found


@contextmanager
def sampled(functions: Collection[Lines]) -> Iterator[None]:
    """Samples the calls of some functions within the block, every few milliseconds, in a thread of its own."""
    stop = threading.Event()

    def run() -> None:
        last = time.perf_counter()
        while not stop.wait(_INTERVAL_S):
            with stacks() as frames:
                now = time.perf_counter()
                for function in functions:
                    for thread in tuple(function.threads):
                        function.add(frames.get(thread), now - last)
            last = now

    sampler = threading.Thread(target=run, name="xttsbench-line-sampler", daemon=True)
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    sampler.start()
    try:
        yield
    finally:
        stop.set()
        sampler.join()
        sys.setswitchinterval(before_s)
