"""The newest readings as one line, or as a screen of lines: pieces of text with a style each, as wide as the terminal.

It is drawn up to some times a second beside what it watches, so it is made of plain pieces, of which the terminal is
sent the lines that changed. :class:`rich.live.Live` renders everything anew, which takes some forty times as long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.style import Style

from xttsbench.analysis.stream import Stream
from xttsbench.records.machine import LISTED, spoken
from xttsbench.reporting.units import duration, number, size
from xttsbench.reporting.words import PART_COLORS, SEVERITY_COLORS, plain

Line = list[tuple[str, str]]
"""Pieces of a line: text and the name of its style in :data:`STYLES`."""

STYLES: Final = {
    "": Style.null(),
    "head": Style.parse("bold"),
    "soft": Style.parse("dim"),
    "use": Style.parse(PART_COLORS["compute"]),
    "memory": Style.parse(PART_COLORS["transfer"]),
    "bad": Style.parse(f"bold {SEVERITY_COLORS['critical']}"),
    "warn": Style.parse(SEVERITY_COLORS["warning"]),
}
_DRAWN: Final = ("use", "memory")  # Styles of bars and curves
_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_LABEL: Final = 9
_INDENT: Final = (" " * _LABEL, "")
_BAR: Final = 24
_CORE: Final = 24  # Columns of one processor: its number, a bar, its use
_MOST_CORE_LINES: Final = 6
_IDLE_REASONS: Final = ("", "gpu_idle")
_MUCH_STOLEN: Final = 0.02


def line(stream: Stream) -> str:
    """The newest readings in one line of words."""
    get = stream.number
    said = [f"processors {_percent(get('cpu_share'))}"]
    if (stolen := get("cpu_steal_share") or 0.0) >= _MUCH_STOLEN:
        said.append(f"{_percent(stolen)} stolen")
    said.append(f"memory {_of(get('memory_used_bytes'), get('memory_total_bytes'))}")
    said.append(
        f"storage {_rate(get('storage_read_bytes_per_s'))} read, {_rate(get('storage_write_bytes_per_s'))} written"
    )
    for gpu in numbered(stream.columns, "gpu"):
        said.append("; ".join(_gpu_words(stream, gpu)))
    if stream.text("process_name"):
        said.append(f"process {_number(get('process_cpus'))} processors, {_size(get('process_memory_bytes'))}")
        said += _steps(stream)
    return f"[{stream.t_s:.1f} s] {', '.join(said)}"


def screen(stream: Stream, *, width: int, height: int, host: str, own_cpu_share: float) -> list[Line]:
    """The newest readings, ``height`` lines at most; what does not fit is left out at the end."""
    lines = [_title(stream, width, host, own_cpu_share), []]
    for part in (_processors, _memory, _storage, _gpus, _process, _oscillations, _users):
        lines += part(stream, width)
    room = height - 1 - len(lines)
    if stream.events and room > 1:
        lines += [[("EVENTS", "head")], *_events(stream, min(room - 1, 8))]
    lines = lines[: height - 1]
    lines += [[] for _ in range(height - 1 - len(lines))]
    return [*lines, [(" q", "head"), (" ends it", "soft")]]


def written(line: Line, width: int, colors: ColorSystem | None) -> str:
    """A line as a terminal takes it, ``width`` columns at most.

    Args:
        line: what to write.
        width: columns of the terminal.
        colors: what it can show; ``None`` for none at all.
    """
    found, left = [], width
    for text, name in line:
        # rich keeps thousands of the texts whose cells it has counted; bars and curves have a cell a character.
        if (long := len(text) if text.isascii() or name in _DRAWN else cell_len(text)) > left:
            text, long = set_cell_size(text, left), left  # noqa: PLW2901 the rest is cut off
        left -= long
        found.append(STYLES[name].render(text, color_system=colors) if name and colors is not None else text)
    return "".join(found)


def numbered(columns: Iterable[str], kind: str) -> list[int]:
    """Numbers of the GPUs or processors (``gpu``, ``cpu``) that there are columns of."""
    found = (re.match(rf"{kind}(\d+)_", column) for column in columns)
    return sorted({int(one[1]) for one in found if one})


def disks(columns: Iterable[str]) -> list[str]:
    """Names of the storage devices that there are columns of."""
    return [one[5:-11] for one in columns if one.startswith("disk_") and one.endswith("_busy_share")]


def _title(stream: Stream, width: int, host: str, own: float) -> Line:
    seconds = round(stream.t_s)
    clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    rate = f"{number(1 / stream.interval_s)} readings a second, " if stream.interval_s else ""
    left, right = f"xttsbench monitor  {plain(host)}", f"{clock}  {rate}itself {100 * own:.2f} % of a processor"
    gap = max(width - cell_len(left) - len(right), 2)
    return [(left, "head"), (" " * gap + right, "soft")]


def _processors(stream: Stream, width: int) -> Iterator[Line]:
    get, cores = stream.number, numbered(stream.columns, "cpu")
    stolen, stopped = get("cpu_steal_share"), get("quota_throttled_cpus")
    held: Line = []
    if stopped is not None:
        held = [(f"  {stopped:.2f} stopped by the quota", "bad" if stopped > _MUCH_STOLEN else "soft")]
    yield [
        ("CPU".ljust(_LABEL), "head"),
        *_bar(get("cpu_share"), _BAR),
        (f"{_percent(get('cpu_share')):>6}  ", ""),
        (f"{_percent(stolen)} stolen  ", "bad" if (stolen or 0) >= _MUCH_STOLEN else "soft"),
        (f"{_percent(get('cpu_iowait_share'))} waiting for storage  ", "soft"),
        (f"{_number(get('runnable_threads'))} threads runnable", "soft"),
        *held,
    ]
    yield [_INDENT, *_curve(stream, "cpu_share", width)]
    across = max((width - _LABEL) // _CORE, 1)
    if len(cores) <= across * _MOST_CORE_LINES:
        for start in range(0, len(cores), across):
            made: Line = [_INDENT]
            for core in cores[start : start + across]:
                share = get(f"cpu{core}_share")
                made += [(f"{core:>3} ", "soft"), *_bar(share, 11), (f"{_percent(share):>6}   ", "")]
            yield made
        return
    across = width - _LABEL
    for start in range(0, len(cores), across):
        shares = [get(f"cpu{core}_share") or 0.0 for core in cores[start : start + across]]
        yield [(f"{cores[start]:>6}   ", "soft"), (_levels(shares), "use")]


def _memory(stream: Stream, _: int) -> Iterator[Line]:
    used, total = stream.number("memory_used_bytes"), stream.number("memory_total_bytes")
    share = used / total if used is not None and total else None
    yield [("memory".ljust(_LABEL), "head"), *_bar(share, _BAR, "memory"), (f"  {_of(used, total)}", "")]


def _storage(stream: Stream, _: int) -> Iterator[Line]:
    get, busy = stream.number, stream.number("storage_busy_share")
    yield [
        ("storage".ljust(_LABEL), "head"),
        *_bar(busy, _BAR, "memory"),
        (f"{_percent(busy):>6}  ", ""),
        (f"{_rate(get('storage_read_bytes_per_s'))} read  ", ""),
        (f"{_rate(get('storage_write_bytes_per_s'))} written", ""),
        (f"  {', '.join(map(plain, disks(stream.columns)))}", "soft"),
    ]


def _gpus(stream: Stream, width: int) -> Iterator[Line]:
    for gpu in numbered(stream.columns, "gpu"):
        values = {name.removeprefix(f"gpu{gpu}_"): stream.number(name) for name in stream.columns}
        error, reasons = stream.text(f"gpu{gpu}_error"), stream.text(f"gpu{gpu}_throttle_reasons")
        used = None if error else values["utilization"]
        yield [
            (f"GPU {gpu}".ljust(_LABEL), "head"),
            *_bar(used, _BAR),
            (f"{_percent(used):>6}  ", ""),
            (plain(stream.text(f"gpu{gpu}_name")), "soft"),
        ]
        if error:
            yield [_INDENT, (f"cannot be read: {plain(error)}", "bad")]
            continue
        if used is not None:
            yield [_INDENT, *_curve(stream, f"gpu{gpu}_utilization", width)]
        held, total = values["memory_used_bytes"], values["memory_total_bytes"]
        yield [
            _INDENT,
            *_bar(held / total if held is not None and total else None, _BAR, "memory"),
            (f"  {_of(held, total)}  {_number(values['power_w'])} W  ", ""),
            (f"{_number(values['sm_clock_mhz'])} / {_number(values['memory_clock_mhz'])} MHz  ", ""),
            (f"PCIe {_rate(values['pcie_rx_bytes_per_s'])} in, {_rate(values['pcie_tx_bytes_per_s'])} out  ", "soft"),
            (reasons, "soft" if reasons in _IDLE_REASONS else "bad"),
        ]
        if pids := stream.text(f"gpu{gpu}_pids"):
            yield [_INDENT, (f"processes {pids}", "soft")]


def _process(stream: Stream, width: int) -> Iterator[Line]:
    if not stream.text("process_name"):
        return
    get = stream.number
    gpu = f"  {_size(get('process_gpu_memory_bytes'))} on GPUs" if get("process_gpu_memory_bytes") is not None else ""
    name = plain(stream.text("process_name"))
    yield []
    yield [
        ("PROCESS".ljust(_LABEL), "head"),
        (f"{_number(get('process_pid'))}".replace(",", ""), ""),
        (f"  {name}", "head"),
    ]
    yield [
        _INDENT,
        (f"{_number(get('process_cpus'))} processors  {_size(get('process_memory_bytes'))}{gpu}  ", ""),
        (f"{_rate(get('process_read_bytes_per_s'))} read, {_rate(get('process_write_bytes_per_s'))} written", "soft"),
    ]
    yield [_INDENT, *_curve(stream, "process_cpus", width)]
    if steps := _steps(stream):
        yield [_INDENT, (", ".join(steps), "head")]


def _steps(stream: Stream) -> list[str]:
    if (steps := stream.number("process_steps")) is None:
        return []
    mean, waiting = stream.number("process_step_time_s"), stream.number("process_input_wait_share")
    newest = [] if mean is None else [f"{duration(mean)} a step", f"{_percent(waiting)} waiting for input"]
    return [f"step {steps:,.0f}", *newest]


def _oscillations(stream: Stream, _: int) -> Iterator[Line]:
    for found in stream.oscillations.values():
        said = f"{spoken(found.column)} repeats every {duration(found.period_s)}"
        yield [("rhythm".ljust(_LABEL), "head"), (f"{said}: {found.variance_share:.0%} of its variance", "warn")]


def _users(stream: Stream, _: int) -> Iterator[Line]:
    named = [place for place in range(1, LISTED + 1) if stream.text(f"top{place}_name")]
    if not named:
        return
    yield []
    yield [("USED BY".ljust(_LABEL), "head"), ("processors", "soft")]
    for place in named:
        cpus, pid = stream.number(f"top{place}_cpus"), stream.number(f"top{place}_pid")
        name = plain(stream.text(f"top{place}_name"))
        yield [(f"{cpus or 0:>{_LABEL + 10}.2f}  ", ""), (name, ""), (f"  {pid:.0f}", "soft")]
    if (unseen := stream.number("unseen_cpus")) is not None:
        yield [(f"{unseen:>{_LABEL + 10}.2f}  by what is not to be seen from here", "soft")]
    yield []


def _events(stream: Stream, most: int) -> Iterator[Line]:
    for event in list(stream.events)[-most:]:
        yield [(f"{event.t_s:>7.1f} s ", "soft"), (event.text, "")]


def _gpu_words(stream: Stream, gpu: int) -> list[str]:
    text = f"gpu{gpu}"
    if error := stream.text(f"{text}_error"):
        return [f"GPU {gpu} cannot be read ({plain(error)})"]
    said = [f"GPU {gpu} {_percent(stream.number(f'{text}_utilization'))}"]
    if (held := stream.number(f"{text}_memory_used_bytes")) is not None:
        said.append(size(held))
    if (power := stream.number(f"{text}_power_w")) is not None:
        said.append(f"{power:.0f} W")
    if (reasons := stream.text(f"{text}_throttle_reasons")) not in _IDLE_REASONS:
        said.append(reasons)
    return said


def _bar(share: float | None, cells: int, style: str = "use") -> Line:
    if share is None:
        return [("·" * cells, "soft")]
    whole, part = divmod(round(min(max(share, 0.0), 1.0) * cells * 8), 8)
    drawn = "█" * whole + (_EIGHTHS[part] if part else "")
    return [(drawn, style), ("·" * (cells - len(drawn)), "soft")]


def _curve(stream: Stream, column: str, width: int) -> Line:
    """The newest values of a column, one a cell; shares from 0 to 1, others up to the largest of them."""
    values = stream.window(column, max(width - _LABEL - 1, 8))
    top = 1.0 if column.endswith(("_share", "_utilization")) else max(values, default=0.0)
    return [(_levels([value / top for value in values] if top > 0 else values), "use")]


def _levels(shares: Sequence[float]) -> str:
    return "".join(_LEVELS[min(max(round(share * 8), 0), 8)] for share in shares)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else number(round(value) if value >= 100 or value == round(value) else value)


def _size(value: float | None) -> str:
    return "-" if value is None else size(value)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{size(value)}/s"


def _of(used: float | None, total: float | None) -> str:
    return f"{_size(used)} of {_size(total)}"
