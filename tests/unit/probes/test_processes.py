import os
import subprocess
import sys
import time
from contextlib import suppress
from types import SimpleNamespace

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

    def write(pid, text, io=None, cmdline=""):
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        (tmp_path / str(pid) / "stat").write_text(text)
        (tmp_path / str(pid) / "cmdline").write_text(cmdline)
        if io is not None:
            (tmp_path / str(pid) / "io").write_text(f"rchar: 0\nread_bytes: {io[0]}\nwrite_bytes: {io[1]}\n")

    machine.write = write
    machine.walk = lambda: Processes(lambda: machine.busy_s, proc=str(tmp_path), clock=lambda: machine.now_s)
    machine.probe = lambda pid: ProcessProbe(pid, proc=str(tmp_path), clock=lambda: machine.now_s)
    return machine


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


def test_a_process_id_that_is_used_again_is_another_process(proc):
    proc.write(5, stat(pid=5, ticks=1000, started=1))
    table, probe = proc.walk(), proc.probe(5)
    proc.write(5, stat(pid=5, ticks=50, started=2))
    proc.now_s = 1.0
    assert [user.cpus for user in table.walk().users] == [0.5]
    assert probe.read() == {}
    assert probe.ended


def test_children_count_and_one_that_ended_is_counted_once(proc):
    proc.write(5, stat(pid=5, ticks=100), io=(0, 0))
    proc.write(6, stat(pid=6, parent=5, ticks=300), io=(1000, 0))
    proc.write(7, stat(pid=7, parent=6, ticks=0), io=(0, 0))
    probe = proc.probe(5)
    assert sorted(proc.walk().walk().family(5)) == [6, 7]
    probe.family = (6, 7)
    proc.now_s = 1.0
    probe.read()
    proc.write(6, stat(pid=6, parent=5, ticks=350, rss=20), io=(5000, 300))
    proc.now_s = 2.0
    found = probe.read()
    assert found["process_cpus"] == pytest.approx(0.5)
    assert (found["process_read_bytes_per_s"], found["process_write_bytes_per_s"]) == (4000, 300)
    assert found["process_memory_bytes"] == 40 * os.sysconf("SC_PAGE_SIZE")
    # It ends after 20 ticks more, and its parent has waited for it: 370 ticks of ended children.
    (proc.home / "6" / "stat").unlink()
    proc.write(5, stat(pid=5, ticks=110).replace("110 0 0 0 20", "110 0 370 0 20"), io=(0, 0))
    proc.now_s = 3.0
    assert probe.read()["process_cpus"] == pytest.approx(0.3)


def test_what_cannot_be_read_is_left_out(proc):
    proc.write(5, stat(pid=5))
    probe = proc.probe(5)
    proc.now_s = 1.0
    assert "process_read_bytes_per_s" not in probe.read()


def test_a_real_process_is_seen_to_burn_a_processor_and_to_end(start):
    table = Processes(lambda: None)
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
