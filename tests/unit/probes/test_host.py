"""The host probe against hand-built /proc trees and real processes (ratios only, no absolute times)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Timer

import pytest

from xttsbench.analysis.disturbance import shares
from xttsbench.analysis.readings import Span
from xttsbench.probes.monitor import CHILDREN_GROUP, MAIN_GROUP, MIN_GAP_NS, HostProbe, processors_in_use

PID = 500
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MACHINE = {"machine_busy_s", "machine_steal_s", "machine_idle_s"}
COLUMNS = {"t_ns", "cpu_s", "run_delay_s", "rss_bytes", "major_faults", "read_bytes", "read_call_bytes", "throttled_s"}
COLUMNS |= MACHINE | {"parent_cpu_s"}
ALL_FIELDS = COLUMNS | {"pids", "thread_group_cpu_s"}


class FakeProc:
    """A /proc of one process, its threads and its children, and a clock and machine counters beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now_ns = 0
        self.parent_cpu_s = 0.0
        self.quota_cpus: float | None = None
        self.machine = {name: 0 for name in ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")}
        self.throttled_s: float | None = 0.5
        (root / "self").mkdir()
        self.process()
        self.processors()
        self.io(0)

    def stat(self, path: Path, **values: int | str) -> None:
        v = {"name": "python", "state": "S", "maj": 0, "cmaj": 0, "cpu": 0, "reaped": 0, "pages": 10} | values
        path.mkdir(parents=True, exist_ok=True)
        (path / "schedstat").write_text(f"7 {v.get('delay_ns', 0)} 3")
        (path / "stat").write_text(
            f"1 ({v['name']}) {v['state']} 1 1 1 0 -1 0 0 0 {v['maj']} {v['cmaj']} {v['cpu']} 0 {v['reaped']} 0 "
            f"20 0 1 0 5 5 {v['pages']} 0"
        )

    def process(self, pid: int = PID, **values: int | str) -> None:
        self.stat(self.root / str(pid), **values)
        (self.root / str(pid) / "task").mkdir(exist_ok=True)
        if not (self.root / str(pid) / "task" / str(pid)).exists():
            self.stat(self.root / str(pid) / "task" / str(pid))

    def thread(self, tid: int, name: str, cpu: int, delay_ns: int = 0, pid: int = PID) -> None:
        self.stat(self.root / str(pid) / "task" / str(tid), name=name, cpu=cpu, delay_ns=delay_ns)

    def children(self, *pids: int, of: int = PID) -> None:
        (self.root / str(of) / "task" / str(of) / "children").write_text(" ".join(map(str, pids)))

    def io(self, read_bytes: int, pid: int = PID) -> None:
        (self.root / str(pid) / "io").write_text(f"rchar: 77\nread_bytes: {read_bytes}\n")

    def end(self, entry: str) -> None:
        shutil.rmtree(self.root / entry)

    def probe(self) -> HostProbe:
        return HostProbe(
            PID,
            proc=str(self.root),
            clock=lambda: self.now_ns,
            parent_cpu_s=lambda: self.parent_cpu_s,
            quota_cpus=lambda: self.quota_cpus,
            throttled=lambda: self.throttled_s,
        )

    def processors(self, *, ids: Sequence[int] = (0,), **ticks: int) -> None:
        """Let each processor spend ``ticks`` on each kind of time."""
        for name, more in ticks.items():
            self.machine[name] += more
        times = " ".join(str(value) for value in self.machine.values())
        lines = [f"cpu  {times}", *(f"cpu{number} {times} 0 0" for number in ids), "intr 1 2 3"]
        (self.root / "stat").write_text("\n".join(lines))

    def step(self, probe: HostProbe, *, ids: Sequence[int] = (0,), **ticks: int) -> None:
        self.now_ns += MIN_GAP_NS
        self.processors(ids=ids, **(ticks or {"user": 1, "idle": 1}))
        probe.sample()


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def test_columns_hold_what_proc_holds(proc: FakeProc) -> None:
    proc.process(cpu=100, maj=5, pages=20)
    probe = proc.probe()
    proc.step(probe)
    proc.process(cpu=100 + TICKS, maj=6, cmaj=1, pages=30)
    proc.io(8192)
    proc.parent_cpu_s = 0.25
    proc.step(probe)
    readings = probe.readings()
    assert readings.t_ns == (MIN_GAP_NS, 2 * MIN_GAP_NS)
    assert readings.cpu_s[1] - readings.cpu_s[0] == pytest.approx(1.0)
    assert readings.rss_bytes == (20 * PAGE, 30 * PAGE)
    assert readings.major_faults == (5, 7)
    assert readings.read_bytes == (0, 8192)
    assert readings.read_call_bytes == (77, 77)
    assert readings.throttled_s == (0.5, 0.5)
    assert readings.pids == (PID,)
    assert readings.parent_cpu_s == (0.0, 0.25)


def test_stolen_time_is_not_use_and_waiting_for_storage_is_idle(proc: FakeProc) -> None:
    probe = proc.probe()
    proc.step(probe, user=TICKS, nice=TICKS, system=TICKS, irq=TICKS, softirq=TICKS)
    proc.step(probe, steal=2 * TICKS)
    proc.step(probe, idle=TICKS, iowait=2 * TICKS)
    readings = probe.readings()
    assert readings.machine_busy_s == pytest.approx((5, 5, 5))
    assert readings.machine_steal_s == pytest.approx((0, 2, 2))
    assert readings.machine_idle_s == pytest.approx((0, 0, 3))


def test_only_the_processors_count_that_the_process_may_run_on(proc: FakeProc, monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3})
    assert proc.probe().readings().allowed_cpus == 2
    proc.quota_cpus = 1.5
    assert proc.probe().readings().allowed_cpus == 1.5
    proc.processors(ids=range(8), user=TICKS)
    probe = proc.probe()
    proc.step(probe, ids=range(8), user=TICKS)
    assert probe.readings().machine_busy_s == pytest.approx((4,))
    # A container layer shows two processors under numbers of its own: those are its processors.
    proc.processors(ids=(0, 1))
    proc.step(probe, ids=(0, 1), user=TICKS)
    assert probe.readings().machine_busy_s[-1] == pytest.approx(6)


def test_waiting_for_a_processor_is_summed_over_the_threads_of_the_family(proc: FakeProc) -> None:
    proc.thread(PID, "python", 0, delay_ns=10**9)
    proc.children(700)
    proc.process(700)
    proc.thread(701, "worker", 0, delay_ns=10**9, pid=700)
    probe = proc.probe()
    proc.step(probe)
    proc.thread(PID, "python", 0, delay_ns=15 * 10**8)
    proc.thread(502, "late", 0, delay_ns=10**8)
    proc.thread(701, "worker", 0, delay_ns=2 * 10**9, pid=700)
    proc.step(probe)
    proc.end(f"{PID}/task/502")
    proc.step(probe)
    found = probe.readings().run_delay_s
    assert (found[1] - found[0], found[2] - found[1]) == pytest.approx((1.6, 0.0))


def test_a_kernel_that_does_not_count_the_wait_for_a_processor(proc: FakeProc) -> None:
    for path in proc.root.rglob("schedstat"):
        path.unlink()
    probe = proc.probe()
    proc.step(probe)
    assert probe.readings().run_delay_s == ()
    assert "schedstat" in probe.readings().unmeasured["run_delay_s"]


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
    proc.step(probe)
    proc.children(700)
    proc.process(700, cpu=4 * TICKS, maj=2, pages=5)
    proc.io(100, 700)
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


def test_children_and_theirs_are_seen_at_once(proc: FakeProc) -> None:
    probe = proc.probe()
    proc.step(probe)
    proc.children(700)
    proc.process(700, cpu=TICKS)
    proc.children(701, of=700)
    proc.process(701, cpu=TICKS)
    proc.step(probe)
    assert probe.readings().pids == (PID, 700, 701)
    assert probe.readings().cpu_s[1] - probe.readings().cpu_s[0] == pytest.approx(2.0)


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
    proc.step(probe)
    proc.step(probe)
    readings = probe.readings()
    assert len(readings.t_ns) == len(readings.cpu_s) == len(readings.machine_busy_s) == 2
    assert readings.read_bytes == readings.read_call_bytes == ()
    assert "io" in readings.unmeasured["read_bytes"]


def test_counters_of_the_machine_that_stand_still_for_a_moment_are_kept(proc: FakeProc) -> None:
    probe = proc.probe()
    proc.step(probe, user=TICKS)
    proc.step(probe, user=0)
    proc.step(probe, user=TICKS)
    assert probe.readings().machine_busy_s == pytest.approx((1, 1, 2))


def test_counters_of_the_machine_that_never_move_are_not_measured(proc: FakeProc) -> None:
    proc.processors(user=5)
    probe = proc.probe()
    proc.step(probe, user=0)
    proc.step(probe, user=0)
    readings = probe.readings()
    assert readings.machine_busy_s == readings.machine_steal_s == readings.machine_idle_s == ()
    assert all("do not advance" in readings.unmeasured[name] for name in MACHINE)


def test_counters_of_the_machine_that_cannot_be_read_any_more_are_not_measured(proc: FakeProc) -> None:
    probe = proc.probe()
    proc.step(probe)
    (proc.root / "stat").unlink()
    proc.now_ns += MIN_GAP_NS
    probe.sample()
    assert len(probe.readings().cpu_s) == 2
    assert probe.readings().machine_steal_s == ()
    assert "cannot be read" in probe.readings().unmeasured["machine_steal_s"]


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
            assert child.stdout.readline() == "ready\n"
            probe = HostProbe(child.pid)
            during(child, probe)
        finally:
            child.kill()
    return probe


def tell(child: subprocess.Popen[str]) -> None:
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
    assert readings.machine_busy_s[-1] > readings.machine_busy_s[0]
    assert readings.run_delay_s[-1] > 0


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


@pytest.mark.measured
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_real_neighbour_is_told_from_the_process_and_its_child() -> None:
    """Both compute as much; one is a child of the watched process, the other is a stranger."""
    spin = "while True: pass"
    family = f"import subprocess, sys, time\nchild = subprocess.Popen([sys.executable, '-c', {spin!r}])\n"
    family += "print('ready', flush=True)\nsys.stdin.readline()\nchild.kill()"

    def sampled(seconds: float, probe: HostProbe) -> Span:
        start_ns = time.perf_counter_ns()
        while time.perf_counter_ns() < start_ns + seconds * 1e9:
            time.sleep(0.05)
            probe.sample()
        return Span(start_ns, time.perf_counter_ns())

    found = []
    with subprocess.Popen(
        [sys.executable, "-c", family], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout.readline() == "ready\n"
        probe = HostProbe(parent.pid)
        found.append(sampled(1.5, probe))
        neighbours = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(os.cpu_count() or 1)]
        found.append(sampled(1.5, probe))
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
        parent.communicate("end\n")
    alone, beside = (shares(probe.readings(), [span]) for span in found)
    assert alone.own > 0.2 / (os.cpu_count() or 1)
    assert beside.foreign > alone.foreign
    assert beside.foreign > 0.25
    assert beside.run_delay > 0.1


def test_processors_in_use_while_nothing_of_ours_computes(tmp_path) -> None:
    stat = tmp_path / "stat"

    def told(user: int, idle: int, steal: int) -> str:
        each = f"{user} 0 0 {idle} 0 0 0 {steal} 0 0"
        return "".join(f"cpu{name} {each}\n" for name in ("", *range(os.cpu_count() or 1)))

    stat.write_text(told(100, 100, 10))
    changed = Timer(0.05, lambda: stat.write_text(told(120, 160, 30)))
    changed.start()
    assert processors_in_use(0.3, proc=str(tmp_path)) == pytest.approx(0.4)
    changed.join()
    assert processors_in_use(0.0, proc=str(tmp_path)) is None  # nothing moved
    assert processors_in_use(0.0, proc=str(tmp_path / "none")) is None


def test_processors_in_use_sees_a_neighbour_that_computes() -> None:
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        time.sleep(0.2)
        assert processors_in_use(0.5) > 0.7
    finally:
        for process in spinning:
            process.kill()
            process.wait()
