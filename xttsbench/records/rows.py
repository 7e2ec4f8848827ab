"""One step as it is recorded: its columns, and rows of it in memory, which one process writes and another one reads.

The memory outlives whoever writes it. It is a table of segments and, for each of them, a ring of rows. A row is written
at once and bears its number as its last word; only then is the segment's count advanced. So a writer that is killed at
any moment loses the row that it was writing and no other, and whoever reads believes no row whose number is not the one
that the count promises. A full ring keeps the newest rows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from mmap import mmap
from typing import Annotated, Final, NamedTuple, get_type_hints

Block = bytearray | mmap | memoryview


class StepRow(NamedTuple):
    """Measurements of one step.

    Nanoseconds are integers of ``time.perf_counter_ns``. The wall time is ``pause_ns``, ``wait_ns``, ``step_ns``, and
    what a loop that is not ours does besides.
    """

    start_ns: Annotated[int, "start of the step, before next(), on the clock perf_counter_ns"]
    wall_ns: Annotated[int, "time from the end of the step before to the end of this one"]
    wait_ns: Annotated[int, "time inside next(); at an epoch's start, making the iterator included"] = 0
    step_ns: Annotated[int, "time inside step(batch), synchronisation of the device and emulated wait included"] = 0
    device_ns: Annotated[int, "wait for the device to finish after the step returned, part of step_ns"] = 0
    emulated_ns: Annotated[int, "wait of the emulated accelerator, part of step_ns"] = 0
    trace_ns: Annotated[int, "tracing of tf.functions, part of step_ns"] = 0
    traces: Annotated[int, "number of traces of tf.functions"] = 0
    xla_ns: Annotated[int, "XLA compilation within the step, of all threads together"] = 0
    xla_compiles: Annotated[int, "number of XLA compilations"] = 0
    sync_ns: Annotated[int, "time of fetching values from the device to Python (.numpy(), float())"] = 0
    syncs: Annotated[int, "number of values fetched from the device to Python"] = 0
    gc_ns: Annotated[int, "time of Python's garbage collection"] = 0
    calls: Annotated[int, "number of calls of tf.functions, without those inside others"] = 0
    calls_ns: Annotated[int, "time inside those calls, tracing and compilation included, part of step_ns"] = 0
    cpu_ns: Annotated[int, "processor time of the whole process"] = 0
    main_cpu_ns: Annotated[int, "processor time of the thread that runs the steps, part of cpu_ns"] = 0
    batch_size: Annotated[int, "first dimension of the batch"] = 0
    batch_elements: Annotated[int, "numbers in the batch, over all its tensors"] = 0
    shape_id: Annotated[int, "index of the batch's shape signature among those seen in the trial"] = 0
    epoch: Annotated[int, "number of times that the dataset was begun again"] = 0
    frames: Annotated[
        int, "frames of the batch with padding, over all its clips; 0 where the workload does not say"
    ] = 0
    pause_ns: Annotated[int, "time of the recorder's own work since the step before, part of wall_ns"] = 0
    batch: Annotated[int, "index of the batch in the order of its pass over the dataset; -1 where it is not known"] = -1
    round: Annotated[int, "number of the round (one turn of each side) of the step; 0 where there is one stretch"] = 0
    valid_frames: Annotated[int, "true frames of the batch, over all its clips; 0 where the workload does not say"] = 0


COLUMNS: Final[dict[str, str]] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(StepRow, include_extras=True).items()
}
"""Column of a segment to its meaning, in the order of a row."""


def absent(column: str) -> int:
    """Default value of a column, as in a journal from before it was kept."""
    return int(StepRow._field_defaults.get(column, 0))


ROWS: Final = 16_384
"""Rows of a segment that are kept, but for one."""
_SEGMENTS: Final = 32
_WIDTH: Final = len(StepRow._fields)
_WORD: Final = 8
WORDS: Final = _WIDTH + 1
"""Words of a row: its columns, and its number from 1 on."""
_ROW: Final = struct.Struct(f"@{WORDS}q")
_ENTRY_BYTES: Final = 128
_TABLE_BYTES: Final = _SEGMENTS * _ENTRY_BYTES
_COUNT, _WARMUP, _NAME_LENGTH, _HIDDEN, _NAME = range(5)
"""Words of an entry of the table; the name takes the words to its end."""
_NAME_BYTES: Final = _ENTRY_BYTES - _NAME * _WORD
_COLUMN: Final = {name: at for at, name in enumerate(StepRow._fields)}


@dataclass(frozen=True)
class Rows:
    """Rows of a segment in memory.

    Attributes:
        name: of the segment.
        columns: as in :class:`xttsbench.records.trial.Segment`.
        warmup_steps: how many of these rows are its warm-up.
        lost: rows that were written and are not here any more: newer ones took their place, or they are not whole.
    """

    name: str
    columns: dict[str, tuple[int, ...]]
    warmup_steps: int
    lost: int


@dataclass(frozen=True)
class Ring:
    """The rows of a segment as they lie in memory: ``rows`` places of :data:`WORDS` words, the last one its number."""

    words: memoryview
    count: int  # Rows that were written so far; row ``n`` is at place ``n % rows`` and bears the number ``n + 1``
    rows: int
    warmup_steps: int


class RowMemory:
    """The memory of one trial; both sides make one of the same block.

    The block has :func:`size_bytes`, zeros at first.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._words = memoryview(block)[: len(block) // _WORD * _WORD].cast("q")
        self._rows = (len(block) - _TABLE_BYTES) // (_SEGMENTS * _ROW.size)
        self._used = 0

    @staticmethod
    def size_bytes(rows: int = ROWS) -> int:
        """Bytes of a memory that keeps so many rows of each segment, but for one."""
        return _TABLE_BYTES + _SEGMENTS * rows * _ROW.size

    def segment(self, name: str, *, hidden: bool = False) -> SegmentRows:
        """Begin a segment.

        A hidden one is not read until it is shown.

        Raises:
            ValueError: there are too many, or the name is too long.
        """
        text = name.encode()
        if self._used == _SEGMENTS or len(text) > _NAME_BYTES:
            raise ValueError(f"segment {name!r}: at most {_SEGMENTS} fit, with names of at most {_NAME_BYTES} bytes")
        entry, first = self._places(self._used)
        self._used += 1
        at = (entry + _NAME) * _WORD
        self._block[at : at + len(text)] = text
        self._words[entry + _HIDDEN] = int(hidden)
        self._words[entry + _NAME_LENGTH] = len(text)  # from now on it is there
        return SegmentRows(self._block, self._words, entry, first, self._rows)

    @property
    def steps(self) -> int:
        """Rows that were written, over all segments that are shown."""
        return sum(self._words[entry + _COUNT] for entry, _ in self._shown())

    def ring(self, name: str) -> Ring | None:
        """The ring of a segment that is shown, for who reads it again and again; ``None`` where there is none."""
        for entry, first in self._shown():
            at, length = (entry + _NAME) * _WORD, self._words[entry + _NAME_LENGTH]
            if bytes(self._block[at : at + length]) == name.encode():
                words = self._words[first : first + self._rows * WORDS]
                return Ring(words, self._words[entry + _COUNT], self._rows, self._words[entry + _WARMUP])
        return None

    def read(self) -> list[Rows]:
        """All segments that are shown, in the order in which they began, with the rows that are whole."""
        found: dict[str, Rows] = {}
        for entry, first in self._shown():
            at = (entry + _NAME) * _WORD
            name = bytes(self._block[at : at + self._words[entry + _NAME_LENGTH]]).decode(errors="replace")
            count = self._words[entry + _COUNT]
            rows = self._whole(first, count)
            columns = {column: tuple(row[at] for row in rows) for column, at in _COLUMN.items()} if rows else {}
            lost = count - len(rows)
            warmup_steps = min(max(self._words[entry + _WARMUP] - lost, 0), len(rows))
            found.setdefault(name, Rows(name, columns, warmup_steps, lost))
        return list(found.values())

    def _places(self, number: int) -> tuple[int, int]:
        """First word of a segment's entry, and of its rows."""
        return number * _ENTRY_BYTES // _WORD, _TABLE_BYTES // _WORD + number * self._rows * WORDS

    def _shown(self) -> list[tuple[int, int]]:
        """Places of the segments that have rows and are shown, and whose entry says nothing absurd."""
        return [
            (entry, first)
            for entry, first in map(self._places, range(_SEGMENTS))
            if 0 < self._words[entry + _NAME_LENGTH] <= _NAME_BYTES
            and not self._words[entry + _HIDDEN]
            and self._words[entry + _COUNT] > 0
        ]

    def _whole(self, first: int, count: int) -> list[list[int]]:
        rows = []
        # A full ring's oldest row may be the one whose place was being written.
        for number in range(max(count - self._rows + 1, 0), count):
            at = first + number % self._rows * WORDS
            row = self._words[at : at + WORDS].tolist()
            if row[_WIDTH] == number + 1:
                rows.append(row)
        return rows


class SegmentRows:
    """Writes the rows of one segment; made by :meth:`RowMemory.segment`."""

    __slots__ = ("_block", "_count", "_entry", "_first", "_rows", "_words", "count")

    def __init__(self, block: Block, words: memoryview, entry: int, first: int, rows: int) -> None:
        self.count = 0
        self._block, self._words, self._entry, self._first, self._rows = block, words, entry, first, rows
        self._count = entry + _COUNT

    def append(self, row: tuple[int, ...]) -> int:
        """Write a :class:`StepRow`, or its values in the same order; returns its index in the segment."""
        index = self.count
        _ROW.pack_into(self._block, (self._first + index % self._rows * WORDS) * _WORD, *row, index + 1)
        self._words[self._count] = self.count = index + 1
        return index

    def warmup(self, steps: int) -> None:
        """Say how many of the first rows are the segment's own warm-up."""
        self._words[self._entry + _WARMUP] = steps

    def show(self) -> None:
        """Have a hidden segment read."""
        self._words[self._entry + _HIDDEN] = 0

    def get(self, index: int, column: str) -> int:
        """A value of a row; 0 where a newer row has taken its place."""
        return int(self._words[self._at(index, column)]) if self._is_kept(index) else 0

    def values(self, column: str, first: int, end: int) -> dict[int, int]:
        """A value of each of these rows, of those that are kept, by their index."""
        words, at = self._words, self._first + _COLUMN[column]
        return {row: words[at + row % self._rows * WORDS] for row in range(max(first, self.count - self._rows), end)}

    def share_out(self, first: int, cpu_ns: int) -> None:
        """Add time of processors to the rows from that index on, which share it by their wall times."""
        walls = self.values("wall_ns", first, self.count) if cpu_ns > 0 else {}
        total_ns = max(sum(walls.values()), 1)
        for index, wall_ns in walls.items():
            self.add_to(index, "cpu_ns", cpu_ns * wall_ns // total_ns)

    def add_to(self, index: int, column: str, value: int) -> None:
        """Add to a value of a row what became known of it since; not where a newer row has taken its place."""
        if self._is_kept(index):
            self._words[self._at(index, column)] += value

    def _is_kept(self, index: int) -> bool:
        return max(self.count - self._rows, 0) <= index < self.count

    def _at(self, index: int, column: str) -> int:
        return self._first + index % self._rows * WORDS + _COLUMN[column]
