"""The host probe against hand-built /proc trees and real processes (ratios only, no absolute times)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from xttsbench.probes.host import CHILDREN_GROUP, MAIN_GROUP, MIN_GAP_NS, HostProbe

PID = 500
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
COLUMNS = {"t_ns", "cpu_s", "rss_bytes", "major_faults", "read_bytes", "read_call_bytes", "throttled_s", "machine_busy"}
ALL_FIELDS = COLUMNS | {"pids", "thread_group_cpu_s"}


class FakeProc:
    """A /proc of one process, its threads and its children, and a clock and machine counters beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now_ns = 0
        self.machine = [0.0] * 10
        self.children: list[int] = []
        self.throttled_s: float | None = 0.5
        (root / "self").mkdir()
        self.process()
        self.io(0)

    def stat(self, path: Path, **values: int | str) -> None:
        v = {"name": "python", "state": "S", "maj": 0, "cmaj": 0, "cpu": 0, "reaped": 0, "pages": 10} | values
        path.mkdir(parents=True, exist_ok=True)
        (path / "stat").write_text(
            f"1 ({v['name']}) {v['state']} 1 1 1 0 -1 0 0 0 {v['maj']} {v['cmaj']} {v['cpu']} 0 {v['reaped']} 0 "
            f"20 0 1 0 5 5 {v['pages']} 0"
        )

    def process(self, pid: int = PID, **values: int | str) -> None:
        self.stat(self.root / str(pid), **values)
        (self.root / str(pid) / "task").mkdir(exist_ok=True)

    def thread(self, tid: int, name: str, cpu: int) -> None:
        self.stat(self.root / str(PID) / "task" / str(tid), name=name, cpu=cpu)

    def io(self, read_bytes: int, pid: int = PID) -> None:
        (self.root / str(pid) / "io").write_text(f"rchar: 77\nread_bytes: {read_bytes}\n")

    def end(self, entry: str) -> None:
        shutil.rmtree(self.root / entry)

    def probe(self) -> HostProbe:
        return HostProbe(
            PID,
            proc=str(self.root),
            clock=lambda: self.now_ns,
            machine_times=lambda: tuple(self.machine),
            children=lambda _: self.children,
            throttled=lambda: self.throttled_s,
        )

    def step(self, probe: HostProbe, *, busy: float = 1.0, idle: float = 1.0) -> None:
        self.now_ns += MIN_GAP_NS
        self.machine[0] += busy
        self.machine[3] += idle
        probe.sample()


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def test_columns_hold_what_proc_holds(proc: FakeProc) -> None:
    proc.process(cpu=100, maj=5, pages=20)
    probe = proc.probe()
    proc.step(probe, busy=3, idle=1)
    proc.process(cpu=100 + TICKS, maj=6, cmaj=1, pages=30)
    proc.io(8192)
    proc.step(probe, busy=0, idle=4)
    readings = probe.readings()
    assert readings.t_ns == (MIN_GAP_NS, 2 * MIN_GAP_NS)
    assert readings.cpu_s[1] - readings.cpu_s[0] == pytest.approx(1.0)
    assert readings.rss_bytes == (20 * PAGE, 30 * PAGE)
    assert readings.major_faults == (5, 7)
    assert readings.read_bytes == (0, 8192)
    assert readings.read_call_bytes == (77, 77)
    assert readings.throttled_s == (0.5, 0.5)
    assert readings.pids == (PID,)
    assert readings.machine_busy == (0.75, 0.0)


def test_threads_are_grouped_and_ended_ones_kept(proc: FakeProc) -> None:
    proc.thread(PID, "python", 50)
    proc.thread(501, "tf_Compute", 400)
    proc.thread(502, "worker_1", 0)
    proc.thread(503, "worker_2", 0)
    probe = proc.probe()
    proc.thread(PID, "python", 50 + 2 * TICKS)
    proc.thread(502, "worker_1", 3 * TICKS)
    proc.thread(503, "worker_2", 4 * TICKS)
    proc.step(probe)
    proc.end(f"{PID}/task/502")
    proc.thread(503, "worker_2", 5 * TICKS)
    proc.thread(600, "late_9", TICKS)
    proc.step(probe)
    # The id 502 comes back as another thread: all its time is new.
    proc.thread(502, "worker_3", TICKS)
    proc.step(probe)
    assert probe.readings().thread_group_cpu_s == pytest.approx({MAIN_GROUP: 2.0, "worker": 9.0, "late": 1.0})


def test_children_count_alive_and_after_they_ended(proc: FakeProc) -> None:
    proc.process(cpu=TICKS, reaped=TICKS)
    probe = proc.probe()
    proc.children = [700]
    proc.process(700, cpu=4 * TICKS, maj=2, pages=5)
    proc.io(100, 700)
    for _ in range(10):  # children are looked for at every tenth sample
        proc.step(probe)
    alive = probe.readings()
    assert alive.cpu_s[0] == pytest.approx(2.0)
    assert alive.cpu_s[-1] == pytest.approx(6.0)
    assert alive.rss_bytes[-1] == 15 * PAGE
    assert alive.major_faults[-1] == 2
    assert alive.read_bytes[-1] == 100
    assert alive.read_call_bytes[-1] == 2 * 77
    assert alive.pids == (PID, 700)
    assert alive.thread_group_cpu_s == pytest.approx({CHILDREN_GROUP: 4.0})
    proc.end("700")
    proc.step(probe)  # ended, not waited for: the counters do not fall
    assert probe.readings().cpu_s[-1] == pytest.approx(6.0)
    proc.process(cpu=TICKS, reaped=6 * TICKS)
    proc.step(probe)
    assert probe.readings().cpu_s[-1] == pytest.approx(7.0)
    assert probe.readings().thread_group_cpu_s == pytest.approx({CHILDREN_GROUP: 5.0})


@pytest.mark.parametrize("ending", ["gone", "zombie", "io gone", "tasks gone"])
def test_a_process_that_ends_stops_the_samples(proc: FakeProc, ending: str) -> None:
    probe = proc.probe()
    proc.step(probe)
    if ending == "gone":
        proc.end(str(PID))
    elif ending == "zombie":
        proc.process(state="Z", pages=0)
    elif ending == "io gone":
        (proc.root / str(PID) / "io").unlink()
    else:
        proc.end(f"{PID}/task")
    proc.step(probe)
    proc.process(cpu=900)  # the id is taken by another process
    proc.io(0)
    proc.step(probe)
    readings = probe.readings()
    lengths = {len(getattr(readings, name)) for name in COLUMNS}
    assert lengths == {1}
    assert 0 not in readings.rss_bytes


def test_a_process_that_never_was_gives_reasons_and_no_zeros(proc: FakeProc) -> None:
    proc.end(str(PID))
    probe = proc.probe()
    proc.step(probe)
    readings = probe.readings()
    assert set(readings.unmeasured) == ALL_FIELDS
    assert "ended" in readings.unmeasured["cpu_s"]
    assert all(not getattr(readings, name) for name in ALL_FIELDS)


def test_without_proc_that_is_the_reason(tmp_path: Path) -> None:
    probe = HostProbe(PID, proc=str(tmp_path / "none"))
    probe.sample()
    assert probe.readings().unmeasured["t_ns"] == "this system has no /proc"


def test_one_field_that_cannot_be_read_does_not_take_the_others_along(proc: FakeProc) -> None:
    (proc.root / str(PID) / "io").unlink()
    probe = proc.probe()
    proc.step(probe, busy=0, idle=0)
    proc.step(probe)
    readings = probe.readings()
    assert len(readings.t_ns) == len(readings.cpu_s) == 2
    assert readings.read_bytes == readings.machine_busy == ()
    assert "io" in readings.unmeasured["read_bytes"]
    assert readings.read_call_bytes == ()
    assert "do not advance" in readings.unmeasured["machine_busy"]


def test_without_a_quota_there_is_nothing_to_throttle(proc: FakeProc) -> None:
    proc.throttled_s = None
    probe = proc.probe()
    proc.step(probe)
    assert probe.readings().throttled_s == ()
    assert "no processor quota" in probe.readings().unmeasured["throttled_s"]


def test_a_kernel_that_counts_no_read_calls(proc: FakeProc) -> None:
    (proc.root / str(PID) / "io").write_text("read_bytes: 5\n")
    probe = proc.probe()
    proc.step(probe)
    assert probe.readings().read_bytes == (5,)
    assert "rchar" in probe.readings().unmeasured["read_call_bytes"]


def test_a_sample_too_soon_is_not_taken(proc: FakeProc) -> None:
    probe = proc.probe()
    probe.sample()
    assert probe.readings().unmeasured["t_ns"] == "no sample was taken"
    proc.step(probe)
    proc.now_ns += MIN_GAP_NS - 1
    probe.sample()
    assert len(probe.readings().t_ns) == 1


BURNER = """
import ctypes, sys, threading, time
def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
def named():
    ctypes.CDLL(None).prctl(15, b"burner_7", 0, 0, 0)  # PR_SET_NAME
    burn(0.3)
data = bytearray(64 << 20)
print("ready", flush=True)
sys.stdin.readline()
thread = threading.Thread(target=named)
thread.start()
thread.join()
burn(0.1)
print("done", flush=True)
sys.stdin.readline()
"""


def watch(code: str, during: Callable[[subprocess.Popen[str], HostProbe], None]) -> HostProbe:
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            probe = HostProbe(child.pid)
            during(child, probe)
        finally:
            child.kill()
    return probe


def tell(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_real_process_burns_three_times_as_much_in_its_named_thread() -> None:
    def during(child: subprocess.Popen[str], probe: HostProbe) -> None:
        time.sleep(0.05)
        probe.sample()
        tell(child)
        os.set_blocking(child.stdout.fileno(), False)  # type: ignore[union-attr]  # a pipe was asked for
        while child.stdout.readline() != "done\n":  # type: ignore[union-attr]
            time.sleep(0.03)
            probe.sample()
        time.sleep(0.05)
        probe.sample()

    readings = watch(BURNER, during).readings()
    used_s = readings.cpu_s[-1] - readings.cpu_s[0]
    groups = readings.thread_group_cpu_s
    # The last stretch of a thread that ended is seen only up to the sample before.
    assert 0.5 < groups["burner"] / 0.3 < 1.15
    assert 1.5 < groups["burner"] / groups[MAIN_GROUP] < 4.5
    assert 0.7 < used_s / 0.4 < 1.3
    assert readings.rss_bytes[-1] > 64 << 20
    assert list(readings.cpu_s) == sorted(readings.cpu_s)
    assert list(readings.t_ns) == sorted(readings.t_ns)
    assert all(0 <= share <= 1 for share in readings.machine_busy)
    assert max(readings.machine_busy) > 0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_killed_process_that_nobody_waited_for_adds_no_sample() -> None:
    def during(child: subprocess.Popen[str], probe: HostProbe) -> None:
        time.sleep(0.03)
        probe.sample()
        child.kill()
        while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.005)
        time.sleep(0.03)
        probe.sample()

    readings = watch(BURNER, during).readings()
    assert len(readings.t_ns) == 1
    assert 0 not in readings.rss_bytes


def test_samples_are_on_the_clock_of_the_steps() -> None:
    times: list[Sequence[float]] = []
    before_ns = time.perf_counter_ns()
    probe = HostProbe(os.getpid())
    time.sleep(0.03)
    probe.sample()
    times.append(probe.readings().t_ns)
    assert before_ns < times[0][0] < time.perf_counter_ns()
