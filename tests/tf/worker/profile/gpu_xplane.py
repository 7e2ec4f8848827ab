"""XPlanes of GPUs, built with TensorFlow's protocol buffers after the layout of those that real GPUs gave.

Two GPUs and four steps of 10 ms. In each step the host waits 3 ms for its batch, launches for 1 ms, runs 1 ms of Python
without TensorFlow, and waits for the devices from 6 ms on; a kernel runs before the end of each of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tensorflow.tsl.profiler.protobuf import xplane_pb2

from xttsbench.worker.profile.xplane import NEXT, STEP, SYNCHRONISE

STEPS = 4
STEP_MS = 10.0
BEGAN_NS = 245_747
"""Of the lines of the devices; those of the host began earlier, as in real files."""

Event = tuple[str, float, float] | tuple[str, float, float, Mapping[str, Any]]
"""Name, start and end in milliseconds, statistics."""


class Plane:
    """A plane with its tables of names; statistics that are text are kept once and referred to, as in real files."""

    def __init__(self, space: Any, name: str) -> None:
        self.plane = space.planes.add(name=name)
        self._events: dict[str, int] = {}
        self._stats: dict[str, int] = {}

    def _id(self, known: dict[str, int], table: Any, name: str) -> int:
        if name not in known:
            known[name] = len(known) + 1
            table[known[name]].id = known[name]
            table[known[name]].name = name
        return known[name]

    def line(self, number: int, name: str, events: Iterable[Event], *, began_ns: int = BEGAN_NS) -> None:
        line = self.plane.lines.add(id=number, name=name, timestamp_ns=began_ns)
        for event in events:
            metadata = self._id(self._events, self.plane.event_metadata, event[0])
            start_ps = round(event[1] * 1e9) - began_ns * 1000
            made = line.events.add(
                metadata_id=metadata, offset_ps=start_ps, duration_ps=round((event[2] - event[1]) * 1e9)
            )
            for key, value in (event[3] if len(event) > 3 else {}).items():
                stat = made.stats.add(metadata_id=self._id(self._stats, self.plane.stat_metadata, key))
                if isinstance(value, str):
                    stat.ref_value = self._id(self._stats, self.plane.stat_metadata, value)
                else:
                    stat.uint64_value = value


KERNEL = {"correlation_id": 7, "kernel_details": "regs:32 static_shared:0 grid:80,1,1 block:1024,1,1 occ_pct:100"}
GEMM = "ampere_sgemm_128x64_nn"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def copied(size: int) -> dict[str, Any]:
    return {"correlation_id": 8, "memcpy_details": f"kind_src:pageable kind_dst:device size:{size} dest:0 async:1"}


def repeated(events: Iterable[Event]) -> list[Event]:
    """The events of one step in each of the steps."""
    return [
        (event[0], event[1] + number * STEP_MS, event[2] + number * STEP_MS, *event[3:])  # type: ignore[misc]
        for number in range(STEPS)
        for event in events
    ]


def host(space: Any, *, markers: bool = True) -> None:
    """The thread of the steps, one that launches in the background, and one of the pipeline."""
    plane = Plane(space, "/host:CPU")
    steps: list[Event] = [
        (STEP, number * STEP_MS, (number + 1) * STEP_MS, {"step_num": number, "_r": 1}) for number in range(STEPS)
    ]
    inside: list[Event] = [
        (NEXT, 0.0, 3.0),
        ("EagerLocalExecute: IteratorGetNext", 0.1, 2.9),
        ("EagerLocalExecute: __inference_step_38", 3.0, 4.0),
        ("cuLaunchKernel", 3.2, 3.3, {"correlation_id": 7}),
        (SYNCHRONISE, 6.0, 10.0),
        ("EagerLocalExecute: SyncDevice", 6.1, 9.9),
        ("cuStreamSynchronize", 6.2, 9.8),
    ]
    known = [event for event in inside if markers or event[0] not in (NEXT, SYNCHRONISE)]
    plane.line(101, "python", [*(steps if markers else ()), *repeated(known)], began_ns=1000)
    launching: list[Event] = [
        ("ExecutorState::Process", 4.0, 4.5),
        (GEMM, 4.1, 4.2, {"correlation_id": 7}),
    ]
    plane.line(102, "tf_gpu_private_0/102", repeated(launching), began_ns=1000)
    # The pipeline works all the time, and asks datasets for elements: nobody waits for that.
    busy: list[Event] = [
        ("IteratorGetNextOp::DoCompute", 3.0, 9.0),
        ("ExecutorState::Process", 0.0, 10.0),
        ("MemcpyH2D", 2.9, 3.0, copied(4096)),
        ("cuMemAlloc_v2", 2.8, 2.9, {"correlation_id": 6}),
    ]
    plane.line(103, "tf_data_private_threadpool/103", repeated(busy), began_ns=1000)


def gpu(space: Any, index: int, kernels_ms: float = 2.0) -> None:
    """A GPU: copy at 3.0 to 3.5 ms, kernels from there on, a collective until 8, a copy back, summaries beside them."""
    plane = Plane(space, f"/device:GPU:{index}")
    computed = 3.5 + kernels_ms
    plane.line(
        14,
        "Stream #14(Compute,Memset)",
        repeated(
            [(GEMM, 3.5, 4.0, KERNEL), (GEMM, 4.0, computed, KERNEL), ("Memset", 3.4, 3.5, {"correlation_id": 9})]
        ),
    )
    copies: list[Event] = [("MemcpyH2D", 3.0, 3.5, copied(4096)), ("MemoryAlloc", 8.6, 9.9, {"correlation_id": 6})]
    plane.line(15, "Stream #15(MemcpyH2D,MemoryAlloc)", repeated(copies))
    plane.line(16, "Stream #16(MemcpyD2H)", repeated([("MemcpyD2H", 8.0, 8.5, copied(128))]))
    plane.line(17, "Stream #17(Compute)", repeated([(NCCL, 5.0, 8.0, KERNEL)]))
    plane.line(-559038734, "TensorFlow Ops", repeated([("dense/MatMul:MatMul", 3.5, 8.0)]))
    plane.line(-559038737, "Steps", [("0", 0.0, 40.0)])


def two_gpus(*, slower: float = 2.0, markers: bool = True) -> Any:
    """The whole: host, both GPUs, and what else a file has."""
    space = xplane_pb2.XSpace(hostnames=["machine"])
    space.planes.add(name="Task Environment")
    host(space, markers=markers)
    gpu(space, 1, slower)
    gpu(space, 0)
    return space


def write(space: Any, directory: Path) -> Path:
    """The file where TensorFlow's profiler puts it below a directory."""
    path = directory / "plugins" / "profile" / "2026_01_01_00_00_00" / "machine.xplane.pb"
    path.parent.mkdir(parents=True)
    path.write_bytes(space.SerializeToString())
    return path
