"""TensorFlow's XPlane of a profiled window as plain arrays, and what XProf says of it.

How the file is laid out: a plane for each GPU (``/device:GPU:0``), a line for each of its streams (``Stream
#14(Compute)``; the other lines are summaries of those), an event for each kernel and copy, with the launch's
``correlation_id``.
The plane ``/host:CPU`` has a line for each thread, with TensorFlow's own events and the calls of the driver, both on
one clock with the streams. Events of a launch carry the kernel's name, or that of the driver's function.

XProf is the installed package's, asked in a process of its own, which is this module: its native code may fail.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from xttsbench.analysis.gpu import TOOLS, DeviceTrace, WindowTrace, read
from xttsbench.analysis.readings import Intervals, covered, intervals, nothing, union, without
from xttsbench.errors import first_line
from xttsbench.records.readings import CAUSES, WORK, Cause, Work, XProfVerdict

STEP: Final = "train"
"""Name of the marker around a step, which XProf knows as well."""
NEXT: Final = "xttsbench.next"
"""Name of the marker around the request for a batch, inside that of the step."""
SYNCHRONISE: Final = "xttsbench.synchronise"
"""Name of the marker around the wait for the devices, an emulated one among them."""
_OWN: Final = frozenset({STEP, NEXT, SYNCHRONISE})

_DEVICE: Final = re.compile(r"^/device:GPU:(\d+)")
_HOST: Final = ("/host:CPU", "/host:CUPTI", "/host:ROCTRACER")
"""TensorFlow puts the driver's planes into the first one when it writes the file."""
_COLLECTIVE: Final = re.compile(r"nccl|rccl|AllReduceKernel", re.IGNORECASE)
_COPY: Final[tuple[tuple[re.Pattern[str], Work], ...]] = (
    (re.compile(r"^(MemcpyH2D|CopyHostToDevice)"), "to_device"),
    (re.compile(r"^(MemcpyD2H|CopyDeviceToHost)"), "from_device"),
    (re.compile(r"^(MemcpyP2P|CopyPeerToPeer)"), "between_devices"),
    (re.compile(r"^(Memcpy|Memset|CopyDeviceToDevice|__amd_rocclr_)"), "on_device"),
)
_NO_WORK: Final = re.compile(r"^(cuMem|Mem(ory)?(Alloc|Free|Residency)|Host(Un)?[Rr]egister|UM_|Overhead)")
"""Names of events on a stream during which the device is idle."""
_NO_LAUNCH: Final = re.compile(r"^(Mem(cpy|set|ory|Alloc|Free)|(cu|cuda|hip)(Mem|\w*Synchronize)|Host(Un)?[Rr]egister)")
"""Names of the driver's calls that launch no kernel; those that do carry the kernel's name, or the function's."""
_PYTHON: Final = "$"
"""Prefix of the Python tracer's frames; the tracer is off here and may be on in the profile of another."""

_CAUSES: Final[tuple[tuple[re.Pattern[str], Cause], ...]] = (
    (re.compile(r"^tf\.function-graph_building|HLO passes|Compiler::|^XlaCompil|^CompileTo"), "compile"),
    (re.compile(r"(^|[:/ ])(SaveV2|MergeV2Checkpoints|Write\w*Summary|FlushSummaryWriter)\b"), "saving"),
    (re.compile(r"^IteratorGetNext(AsOptional)?(Sync)?Op::DoCompute"), "input"),
    (re.compile(r"^(cu|cuda|hip)(Stream|Ctx|Device|Event)Synchronize|BlockHostUntilDone"), "sync"),
    (
        re.compile(r"^(ExecutorState::Process|FunctionRun|EagerExecute|EagerKernelExecute|EagerLocalExecute)"),
        "dispatch",
    ),
)
_CALL: Final = "EagerLocalExecute"  # How the call of one op, or of one traced function, from Python begins
_TRACED: Final = "traced-"  # How ``tf_function_call`` of a call begins that traced


def newest(directory: str) -> Path | None:
    """The newest XPlane below the directory of a profile, or ``None``."""
    files = sorted(Path(directory).glob("plugins/profile/*/*.xplane.pb"), key=lambda path: path.stat().st_mtime)
    return files[-1] if files else None


def read_window(path: Path, starts_ns: Mapping[int, int]) -> WindowTrace | str:
    """The steps of a profile with what GPUs and host did, or why they cannot be read.

    Args:
        path: of the XPlane.
        starts_ns: number of a step -> when it began on the clock of the steps, which puts the profile on it.
    """
    # Inside, since the protocol buffer's module moved between versions and only a profile needs it.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    try:
        space.ParseFromString(path.read_bytes())
    except Exception:  # protobuf's DecodeError, of a package without types
        return "TensorFlow's XPlane cannot be parsed"
    planes = [plane for plane in space.planes if plane.name.startswith(_HOST)]
    marks = [mark for mark in _marks(planes) if mark[0] in starts_ns]
    if not marks:
        return "the profile has no step marker"
    devices = [device for plane in space.planes if (device := _device(plane)) is not None]
    return WindowTrace(
        steps=intervals([mark[1] for mark in marks], [mark[2] for mark in marks]),
        devices=sorted(devices, key=lambda device: device.index),
        host=_host(planes, marks[0][3]),
        offset_ns=round(median(starts_ns[number] - start for number, start, _, _ in marks)),
        unmeasured=_why_no_device(devices, [*space.errors, *space.warnings]),
    )


def _why_no_device(devices: list[DeviceTrace], said: list[str]) -> dict[str, str]:
    if any(len(device.rows) for device in devices):
        return {}
    if not devices:
        return {"devices": "no GPU in the profile: TensorFlow ran on the processor"}
    heard = f": {first_line(said[0])}" if said and said[0] else ""
    return {
        "devices": "the profile names a GPU and has none of its events (nothing ran there, or the driver does not let "
        f"this user profile: NVreg_RestrictProfilingToAdminUsers){heard}"
    }


def _names(plane: Any) -> dict[int, str]:
    return {number: metadata.name for number, metadata in plane.event_metadata.items()}


def _stat_ids(plane: Any, *names: str) -> frozenset[int]:
    return frozenset(number for number, metadata in plane.stat_metadata.items() if metadata.name in names)


def _span(line: Any, event: Any) -> tuple[int, int]:
    start_ps = line.timestamp_ns * 1000 + event.offset_ps
    return start_ps // 1000, (start_ps + event.duration_ps) // 1000


def _marks(planes: list[Any]) -> list[tuple[int, int, int, int]]:
    """Number, start, end and thread of each step, in order."""
    found = []
    for plane in planes:
        named = {number for number, name in _names(plane).items() if name == STEP}
        number_of = _stat_ids(plane, "step_num")
        for line in plane.lines:
            for event in line.events:
                if event.metadata_id in named:
                    stat = next((stat for stat in event.stats if stat.metadata_id in number_of), None)
                    if stat is not None:
                        found.append((int(getattr(stat, stat.WhichOneof("value"))), *_span(line, event), line.id))
    return sorted(found, key=lambda mark: mark[1])


def _device(plane: Any) -> DeviceTrace | None:
    """The streams of a GPU's plane; ``None`` for another plane."""
    found = _DEVICE.match(plane.name)
    if found is None:
        return None
    lines = [line for line in plane.lines if line.name.lower().startswith("stream")]
    work_of = {
        number: WORK.index(work_of_event(name)) for number, name in _names(plane).items() if not _NO_WORK.match(name)
    }
    rows = [
        (*_span(line, event), work_of[event.metadata_id])
        for line in lines
        for event in line.events
        if event.metadata_id in work_of
    ]
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return DeviceTrace(int(found[1]), table[:, :2], table[:, 2])


def work_of_event(name: str) -> Work:
    """Kind of a stream's event, by its name: of NVIDIA's tracer, or of AMD's."""
    copied = next((work for pattern, work in _COPY if pattern.search(name)), None)
    return copied or ("collective" if _COLLECTIVE.search(name) else "kernel")


def _text(plane: Any, stat: Any) -> str:
    """A statistic that is text, which may be kept once for many."""
    return str(stat.str_value or (plane.stat_metadata[stat.ref_value].name if stat.ref_value else ""))


@cache
def cause_of_event(name: str) -> Cause | None:
    """Activity of the host during an event of that name; ``None`` where the name does not show it."""
    return next((cause for pattern, cause in _CAUSES if pattern.search(name)), None)


def _host(planes: list[Any], main: int) -> dict[Cause, Intervals]:
    """When the host did what: by the events of the thread of the steps, and of those that launch kernels for it."""
    found: dict[Cause, list[Intervals]] = defaultdict(list)
    waiting = synchronising = calls = launching = nothing()
    for plane in planes:
        names = _names(plane)
        for line in plane.lines:
            is_main = line.id == main
            sets, launches = _thread(plane, line, names, is_main=is_main)
            for cause in ("compile", "saving", "input"):
                found[cause].append(sets[cause])
            if is_main:
                waiting, synchronising, calls = sets[NEXT], sets[SYNCHRONISE], sets[_CALL]
                found["sync"].append(sets["sync"])
                found["dispatch"].append(sets["dispatch"])
            elif launches:
                launching = union(launching, sets["dispatch"])
    if len(waiting):
        found["input"] = [waiting]  # exact; pipelines ask one another for elements as well, in the background
    found["compile"].append(_until_compiled(calls, union(*found["compile"])))
    found["dispatch"].append(launching)  # moments that wait as well go to the wait: it comes first
    found["sync"].append(without(synchronising, launching))
    return {cause: union(*spans) for cause, spans in found.items()}


def _thread(plane: Any, line: Any, names: Mapping[int, str], *, is_main: bool) -> tuple[dict[str, Intervals], bool]:
    """Sets of moments of a thread by cause and by marker, and whether it launched kernels.

    On the thread of the steps whatever TensorFlow says without a cause of its own is the launching of ops.
    """
    called, driver = _stat_ids(plane, "tf_function_call"), _stat_ids(plane, "correlation_id")
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    launches = False
    for event in line.events:
        name, span = names.get(event.metadata_id, ""), _span(line, event)
        if is_main and name in _OWN:
            spans[name].append(span)
            continue
        launch = not _NO_LAUNCH.match(name) and any(stat.metadata_id in driver for stat in event.stats)
        launches |= launch
        cause = cause_of_event(name)
        if cause is not None or launch or (is_main and not name.startswith(_PYTHON)):
            spans[cause or "dispatch"].append(span)
        if is_main and name.startswith(_CALL):
            spans[_CALL].append(span)
        if is_main and any(
            stat.metadata_id in called and _text(plane, stat).startswith(_TRACED) for stat in event.stats
        ):
            spans["compile"].append(span)
    sets = {key: union(np.array(spans[key], dtype=np.int64).reshape(-1, 2)) for key in (*CAUSES, *_OWN, _CALL)}
    return sets, launches


def _until_compiled(calls: Intervals, compiled: Intervals) -> Intervals:
    """Each call that compiled something, from its start to the end of that: before XLA's passes comes its bridge."""
    at = covered(compiled, calls) > 0
    ends = [int(compiled[compiled[:, 0] < end][-1, 1]) for end in calls[at, 1]]
    return intervals(calls[at, 0], np.minimum(ends, calls[at, 1])) if ends else nothing()


_SECONDS: Final = 30.0
_PACKAGES: Final = ("xprof", "tensorboard_plugin_profile")  # Where the converter is: today, and before 2.20
_ABSENT: Final = "XProf is not installed: pip install tensorboard-plugin-profile"


def ask(path: Path) -> XProfVerdict | str:
    """Verdict of XProf on an XPlane, or the reason for none."""
    command, ended = [sys.executable, "-P", "-m", __name__, str(path)], "before it answered"
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_SECONDS, check=False)
        ended = f"with {done.returncode}"
        said = json.loads(done.stdout.splitlines()[-1])
        return str(said["error"]) if "error" in said else XProfVerdict(**said)
    except subprocess.TimeoutExpired:
        return f"XProf took more than {_SECONDS:.0f} s"
    except (OSError, ValueError, IndexError, TypeError):
        return f"XProf ended {ended}, and gave no answer that can be read"


def main(path: str) -> dict[str, Any]:
    """The verdict as a dictionary, or its ``error``."""
    for package in _PACKAGES:
        with suppress(ImportError, PackageNotFoundError):
            convert = importlib.import_module(f"{package}.convert.raw_to_tool_data").xspace_to_tool_data
            of = version(package.replace("_", "-"))
            break
    else:
        return {"error": _ABSENT}
    try:
        found = read({tool: convert([path], tool, {})[0] for tool in TOOLS})
    except Exception as error:  # whatever it raises, our own figures stand
        return {"error": f"XProf could not read the profile: {type(error).__name__}"}
    return found.model_copy(update={"version": of}).model_dump(mode="json")


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
