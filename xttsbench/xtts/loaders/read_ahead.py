"""Reading ahead of the batches: the requests of the next ones are in flight while one is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock


class ReadAhead:
    """Contents of the clips of batches, which threads ask for in the order of the batches.

    At most ``in_flight`` requests run at once, and so many batches are asked for ahead of the one that is taken as
    keep them all busy. A clip that a batch needs twice is read once. What a read raises is raised where its batch is
    taken.
    """

    def __init__(
        self, read: Callable[[int], bytes], clips: Callable[[int], Iterable[int]], batches: int, in_flight: int
    ) -> None:
        """Prepare: nothing is read before the first batch is taken.

        Args:
            read: gives the content of a clip; from several threads at once.
            clips: gives the clips of a batch.
            batches: how many there are.
            in_flight: requests at once.
        """
        self._read, self._clips, self._batches, self._in_flight = read, clips, batches, in_flight
        self._threads = ThreadPoolExecutor(in_flight, thread_name_prefix="read-ahead")
        self._asked: dict[int, dict[int, Future[bytes]]] = {}
        self._next = 0
        self._lock = Lock()

    def take(self, number: int) -> dict[int, bytes]:
        """Return the content of each clip of a batch; each batch once, in their order but for what runs in parallel."""
        with self._lock:
            if number not in self._asked:  # the first, or the first of another turn
                self._ask(number)
                self._next = number + 1
            mine = self._asked.pop(number)
            # Twice what may be in flight is asked for, so that it does not run dry while a batch is put together.
            while self._next < self._batches and sum(map(len, self._asked.values())) < 2 * self._in_flight:
                if self._next not in self._asked:
                    self._ask(self._next)
                self._next += 1
        return {clip: future.result() for clip, future in mine.items()}

    def _ask(self, number: int) -> None:
        self._asked[number] = {clip: self._threads.submit(self._read, clip) for clip in set(self._clips(number))}

    def close(self) -> None:
        """Let the threads end; what they have not begun is not read."""
        self._threads.shutdown(wait=False, cancel_futures=True)
