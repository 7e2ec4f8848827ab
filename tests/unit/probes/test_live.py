import itertools
from types import SimpleNamespace

import psutil
import pytest

from xttsbench.probes.live import MachineProbe, Pace

LIMIT = 4 << 30


class Machine:
    """A machine of two processors and a disk in files."""

    def __init__(self, root):
        self.root, self.now_s = root, 100.0
        (root / "proc/self").mkdir(parents=True)
        for name in ("vda", "loop0"):
            (root / "sys/block" / name).mkdir(parents=True)
        (root / "sys/block/vda/device").mkdir()
        self.processors((0, 0), (0, 0))
        self.disk(0, 0, 0)

    def processors(self, *each, steal=0):
        """Ticks used and idle of each."""
        lines = [f"{used} 0 0 {idle} 0 0 0 {steal} 0 0" for used, idle in each]
        both = f"{sum(one[0] for one in each)} 0 0 {sum(one[1] for one in each)} 0 0 0 {steal * len(each)} 0 0"
        text = [f"cpu  {both}", *(f"cpu{n} {line}" for n, line in enumerate(lines)), "intr 5 1 2"]
        (self.root / "proc/stat").write_text("\n".join(text) + "\n")
        (self.root / "proc/loadavg").write_text("0.20 0.18 0.12 3/80 11206\n")

    def disk(self, read, written, busy_ms):
        lines = [
            f"254 0 {name} 1 0 {read} 0 1 0 {written} 0 0 {busy_ms} 0 0 0 0 0 0 0" for name in ("vda", "vda1", "loop0")
        ]
        (self.root / "proc/diskstats").write_text("\n".join(lines) + "\n")

    def group(self, **files):
        home = self.root / "sys/fs/cgroup/mine"
        home.mkdir(parents=True, exist_ok=True)
        (self.root / "proc/self/cgroup").write_text("0::/mine\n")
        for name, text in files.items():
            (home / name.replace("_", ".", 1)).write_text(f"{text}\n")

    def probe(self):
        return MachineProbe(self.root, clock=lambda: self.now_s)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=8 << 30, available=6 << 30))
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    return Machine(tmp_path)


def test_a_reading_is_what_went_on_since_the_one_before(machine):
    probe = machine.probe()
    machine.processors((150, 50), (20, 180), steal=50)
    machine.disk(2000, 4000, 500)
    machine.now_s += 2
    found = probe.read()
    assert (probe.cores, probe.disks) == ((0, 1), ("vda",))
    assert found["cpu0_share"] == pytest.approx(150 / 250)
    assert found["cpu1_share"] == pytest.approx(20 / 250)
    assert found["cpu_share"] == pytest.approx(170 / 500)
    assert found["cpu_steal_share"] == pytest.approx(0.2)
    assert found["runnable_threads"] == 3
    assert found["storage_read_bytes_per_s"] == found["disk_vda_read_bytes_per_s"] == 2000 * 512 / 2
    assert found["storage_write_bytes_per_s"] == 4000 * 512 / 2
    assert found["storage_busy_share"] == 0.25
    assert (found["memory_used_bytes"], found["memory_total_bytes"]) == (2 << 30, 8 << 30)
    assert "quota_throttled_cpus" in probe.unmeasured


def test_memory_is_the_groups_where_that_has_a_limit(machine):
    machine.group(memory_max=LIMIT, memory_current=3 << 30, memory_stat="inactive_file 0")
    machine.now_s += 1
    found = machine.probe().read()
    assert (found["memory_used_bytes"], found["memory_total_bytes"]) == (3 << 30, LIMIT)


def test_what_a_quota_stops_is_told_in_processors(machine):
    machine.group(cpu_max="100000 100000", cpu_stat="throttled_usec 1000000")
    probe = machine.probe()
    machine.group(cpu_stat="throttled_usec 2500000")
    machine.now_s += 2
    assert probe.read()["quota_throttled_cpus"] == pytest.approx(0.75)
    assert "quota_throttled_cpus" not in probe.unmeasured


def test_a_processor_that_sleeps_or_goes_is_empty_and_never_zero(machine):
    probe = machine.probe()
    machine.processors((10, 10))
    machine.now_s += 1
    found = probe.read()
    assert found["cpu0_share"] == 0.5
    assert "cpu1_share" not in found


def test_counters_that_fall_give_no_negative_share(machine):
    machine.processors((100, 1000), (100, 1000))
    probe = machine.probe()
    machine.processors((150, 990), (90, 1100))
    machine.now_s += 1
    found = probe.read()
    assert found["cpu0_share"] == 1.0
    assert found["cpu1_share"] == 0.0


def test_where_nothing_can_be_read_every_reason_is_given(tmp_path, monkeypatch):
    def refuses():
        raise OSError("no /proc")

    monkeypatch.setattr(psutil, "virtual_memory", refuses)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    times = itertools.count()
    probe = MachineProbe(tmp_path, clock=lambda: next(times))
    assert all(value is None for value in probe.read().values())
    assert {"cpu_share", "storage_read_bytes_per_s", "memory_used_bytes"} <= set(probe.unmeasured)


class Ticking:
    """A clock, and what the work took of a processor."""

    def __init__(self) -> None:
        self.now_s = self.spent_s = 0.0

    def pace(self, share: float, least_s: float) -> Pace:
        return Pace(share, least_s, clock=lambda: self.now_s, cost=lambda: self.spent_s)

    def run(self, pace: Pace, seconds: float, cost_s: float, tick_s: float = 0.1) -> list[float]:
        """When it was done."""
        done, end_s = [], self.now_s + seconds
        while self.now_s < end_s:
            if pace.due():
                done.append(self.now_s)
                with pace:
                    self.spent_s += cost_s
            self.now_s += tick_s
        return done


def test_cheap_work_is_done_at_each_tick_that_is_asked_for():
    machine = Ticking()
    assert len(machine.run(machine.pace(0.01, 0.1), 10, 0.0001)) == pytest.approx(100, abs=1)
    assert len(machine.run(machine.pace(0.01, 1.0), 10, 0.0001)) == pytest.approx(10, abs=1)


@pytest.mark.parametrize("cost_s", [0.005, 0.02, 0.5])
def test_dear_work_takes_its_share_and_no_more(cost_s):
    machine = Ticking()
    machine.run(machine.pace(0.002, 0.0), 2000, cost_s)
    assert machine.spent_s / 2000 == pytest.approx(0.002, rel=0.15)


def test_what_is_slow_once_is_put_off_by_what_was_saved_before():
    machine = Ticking()
    pace = machine.pace(0.002, 0.1)
    machine.run(pace, 20, 0.0001)  # half of its share: 20 ms are saved
    machine.run(pace, 0.05, 0.015)
    assert len(machine.run(pace, 10, 0.0001)) > 90
