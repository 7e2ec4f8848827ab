import os
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from types import SimpleNamespace

import psutil
import pytest

from xttsbench.probes.processes import Processes, ProcessProbe, announce, read_live, running
from xttsbench.records.watch import LIVE_FILE, LiveRun, RecentSteps, running_directory

BURN = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
PARENT = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])"


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("XTTSBENCH_RUNTIME", str(tmp_path / "runtime"))


@pytest.fixture
def start():
    running = []

    def begin(*arguments):
        running.append(subprocess.Popen([sys.executable, *arguments], start_new_session=True))
        return running[-1]

    yield begin
    for one in running:
        with suppress(ProcessLookupError):
            os.killpg(one.pid, 9)
        one.wait()


def stat(name="python", *, pid=7, state="S", parent=1, ticks=0, started=500, rss=10):
    fields = [state, parent, *["0"] * 9, ticks, 0, 0, 0, 20, 0, 1, 0, started, 0, rss]
    return f"{pid} ({name}) {' '.join(map(str, fields))} 0 0\n"


@pytest.fixture
def proc(tmp_path):
    """A process table in files, and its clock."""
    machine = SimpleNamespace(now_s=0.0, busy_s=0.0, home=tmp_path)

    def write(pid, text, cmdline=""):
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        (tmp_path / str(pid) / "stat").write_text(text)
        (tmp_path / str(pid) / "cmdline").write_text(cmdline)

    machine.write = write
    machine.walk = lambda: Processes(busy_s=lambda: machine.busy_s, proc=str(tmp_path), clock=lambda: machine.now_s)
    return machine


class Living:
    """Processes as psutil has them, and their clock."""

    def __init__(self):
        self.now_s, self.found = 0.0, {}

    def put(self, pid, *, used_s=0.0, reaped_s=0.0, io=None, rss=10):
        """Let there be a process that used so much, and read and wrote so many bytes."""

        def counters():
            if io is None:
                raise psutil.AccessDenied(pid)
            return SimpleNamespace(read_bytes=io[0], write_bytes=io[1])

        self.found[pid] = SimpleNamespace(
            pid=pid,
            name=lambda: "python",
            is_running=lambda: True,
            status=lambda: psutil.STATUS_SLEEPING,
            oneshot=nullcontext,
            cpu_times=lambda: (used_s, 0.0, reaped_s, 0.0, 0.0),
            memory_info=lambda: SimpleNamespace(rss=rss),
            io_counters=counters,
        )

    def process(self, pid):
        """As ``psutil.Process``: the same object shows what a process has become."""
        if pid not in self.found:
            raise psutil.NoSuchProcess(pid)
        return Latest(self, pid)


class Latest:
    def __init__(self, living, pid):
        self.living, self.pid = living, pid

    def __getattr__(self, name):
        return getattr(self.living.found[self.pid], name)


@pytest.fixture
def living(monkeypatch):
    found = Living()
    monkeypatch.setattr(psutil, "Process", found.process)
    return found


def test_who_uses_most_comes_first_and_the_rest_is_unseen(proc):
    for pid in range(1, 6):
        proc.write(pid, stat(pid=pid, ticks=100))
    table = proc.walk()
    for pid in range(1, 6):
        proc.write(pid, stat(pid=pid, ticks=100 + 20 * pid), cmdline="/usr/bin/python3\0-u\0/home/me/train.py\0--x\0")
    proc.write(9, stat("fresh", pid=9, ticks=10))
    proc.now_s, proc.busy_s = 2.0, 4.0
    walk = table.walk()
    assert [(user.pid, round(user.cpus, 6)) for user in walk.users] == [(5, 0.5), (4, 0.4), (3, 0.3)]
    assert walk.users[0].name == "python train.py"
    assert walk.unseen_cpus == pytest.approx((4.0 - 3.1) / 2)


def test_a_process_id_that_is_used_again_is_another_process(proc, living):
    proc.write(5, stat(pid=5, ticks=1000, started=1))
    living.put(5)
    table, probe = proc.walk(), ProcessProbe(5, clock=lambda: proc.now_s)
    proc.write(5, stat(pid=5, ticks=50, started=2))
    living.found[5].is_running = lambda: False
    proc.now_s = 1.0
    assert [user.cpus for user in table.walk().users] == [0.5]
    assert probe.read() == {}
    assert probe.ended


def test_a_family_is_all_that_descends_from_a_process(proc):
    for pid, parent in ((5, 1), (6, 5), (7, 6)):
        proc.write(pid, stat(pid=pid, parent=parent))
    assert sorted(proc.walk().walk().family(5)) == [6, 7]


def test_children_count_and_one_that_ended_is_counted_once(living):
    living.put(5, used_s=1.0, io=(0, 0))
    living.put(6, used_s=3.0, io=(1000, 0))
    living.put(7, io=(0, 0))
    probe = ProcessProbe(5, clock=lambda: living.now_s)
    probe.family = (6, 7)
    living.now_s = 1.0
    probe.read()
    living.put(6, used_s=3.5, io=(5000, 300), rss=20)
    living.now_s = 2.0
    found = probe.read()
    assert found["process_cpus"] == pytest.approx(0.5)
    assert (found["process_read_bytes_per_s"], found["process_write_bytes_per_s"]) == (4000, 300)
    assert found["process_memory_bytes"] == 40
    # It ends after 0.2 s more, and its parent has waited for it: 3.7 s of ended children.
    del living.found[6]
    living.put(5, used_s=1.1, reaped_s=3.7, io=(0, 0))
    living.now_s = 3.0
    assert probe.read()["process_cpus"] == pytest.approx(0.3)


def test_what_cannot_be_read_is_left_out_with_its_reason(living):
    living.put(5)
    probe = ProcessProbe(5, clock=lambda: living.now_s)
    living.now_s = 1.0
    assert "process_read_bytes_per_s" not in probe.read()
    assert "owner only" in probe.unmeasured["process_read_bytes_per_s"]


def test_a_kernel_that_does_not_count_what_a_process_reads_costs_those_columns_alone(living):
    living.put(5, used_s=1.0)
    del living.found[5].io_counters  # as psutil has it where there is no /proc/<pid>/io
    probe = ProcessProbe(5, clock=lambda: living.now_s)
    living.now_s = 1.0
    assert (probe.read().keys(), "cannot be read" in probe.unmeasured["process_write_bytes_per_s"]) == (
        {"process_cpus", "process_memory_bytes"},
        True,
    )


def test_a_real_process_is_seen_to_burn_a_processor_and_to_end(start):
    table = Processes()
    parent = start("-c", PARENT)
    probe = ProcessProbe(parent.pid)
    deadline = time.monotonic() + 20
    cpus = 0.0
    while cpus < 0.3 and time.monotonic() < deadline:
        time.sleep(0.3)
        probe.family = table.walk().family(parent.pid)
        cpus = probe.read().get("process_cpus", 0.0)
    assert cpus >= 0.3
    os.killpg(parent.pid, 9)
    parent.wait()
    assert probe.read() == {}
    assert probe.ended
    with pytest.raises(ProcessLookupError):
        ProcessProbe(parent.pid)


def test_a_watched_run_shows_its_steps(start, tmp_path):
    process = start("-c", "import time; time.sleep(60)")
    live = LiveRun(
        pid=process.pid, script="train.py", started_utc="a", updated_utc="b", over=False, steps=12,
        recent=RecentSteps(steps=5, step_time_s=0.25, input_wait_fraction=0.5),
    )  # fmt: skip
    (tmp_path / LIVE_FILE).write_text(live.model_dump_json())
    announce(process.pid, tmp_path)
    time.sleep(0.01)
    found = ProcessProbe(process.pid).read()
    assert (found["process_steps"], found["process_step_time_s"], found["process_input_wait_share"]) == (12, 0.25, 0.5)


def test_a_running_process_leads_to_its_run_and_is_closed_to_others(tmp_path):
    assert running() == {}
    file = announce(os.getpid(), tmp_path / "run")
    assert file == running_directory() / f"{os.getpid()}.json"
    assert running_directory().stat().st_mode & 0o777 == 0o700
    assert running() == {os.getpid(): tmp_path / "run"}


def test_the_file_of_a_dead_process_is_removed_and_a_broken_one_is_passed_over(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    file = announce(dead.pid, tmp_path)
    (running_directory() / "1.json").write_text("{half")
    assert running() == {}
    assert not file.exists()


def test_without_a_place_for_it_nothing_is_announced(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XTTSBENCH_RUNTIME", str(tmp_path / "file"))
    assert announce(os.getpid(), tmp_path) is None
    assert running() == {}


def test_a_run_says_how_it_goes_or_nothing(tmp_path):
    live = LiveRun(
        pid=7, script="train.py", started_utc="2026-01-01T00:00:00Z", updated_utc="2026-01-01T00:00:01Z", over=False,
        steps=3, recent=RecentSteps(steps=3, step_time_s=0.25, input_wait_fraction=0.5),
    )  # fmt: skip
    assert read_live(tmp_path) is None
    (tmp_path / LIVE_FILE).write_text(live.model_dump_json())
    assert read_live(tmp_path) == live
    (tmp_path / LIVE_FILE).write_text(live.model_dump_json()[:-5])
    assert read_live(tmp_path) is None
