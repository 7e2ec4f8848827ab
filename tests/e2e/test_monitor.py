"""``xttsbench monitor`` as a user runs it: real processes, a terminal, kills, and faults of GPUs by a stub driver."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from xttsbench.probes.processes import announce
from xttsbench.records.watch import LIVE_FILE, LiveRun, RecentSteps
from xttsbench.workflows.monitor.log import read_log

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc, gcc, clang) to build the NVML stub")
STUB = Path(__file__).parents[1] / "unit" / "probes" / "nvml_stub.c"
LOST, UNKNOWN, HANGS = 15, 999, -1
SLEEP = "import time; time.sleep(60)"


def command(*options):
    return [sys.executable, "-m", "xttsbench", "monitor", "--interval", "0.05", *map(str, options)]


def started(environment, *options):
    return subprocess.Popen(
        command(*options), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(environment, *options, code=0):
    done = subprocess.run(command(*options), env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def environment(tmp_path):
    found = os.environ | {"XTTSBENCH_RUNTIME": str(tmp_path / "runtime"), "TERM": "xterm-256color"}
    return {name: value for name, value in found.items() if name != "NO_COLOR"}


@pytest.fixture
def gpus(environment, tmp_path):
    """An environment with two GPUs, the first of which is busy in turns of 0.4 s, and a file that makes one fail."""
    home = tmp_path / "driver"
    home.mkdir()
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", home / "libnvidia-ml.so.1", STUB], check=True)
    stub = {"NVML_STUB_EPOCH_US": "1", "NVML_STUB_PERIOD_MS": "800", "NVML_STUB_FAULT": str(home / "fault")}
    return environment | stub | {"LD_LIBRARY_PATH": str(home)}


def wait_for(log, said, times=1):
    """Until the log holds it so often, which takes seconds on a quiet machine."""
    deadline = time.monotonic() + 60
    while not log.exists() or log.read_bytes().count(said) < times:
        assert time.monotonic() < deadline, f"no {said!r} in 60 s"
        time.sleep(0.05)


def wait_for_rows(log, rows):
    wait_for(log, b"\n", rows + 1)


def test_the_record_is_on_standard_output_and_the_log_has_every_reading(environment, tmp_path):
    log = tmp_path / "a.csv"
    done = ended(environment, "--duration", 1.5, "--log", log, "--json")
    record = json.loads(done.stdout)
    rows = list(csv.DictReader(log.read_text().splitlines()))
    assert (record["kind"], record["schema_version"], record["readings"]) == ("monitor", 3, len(rows))
    assert 3 <= len(rows) <= 31  # a busy machine has fewer
    assert 0 <= record["signals"]["cpu_share"]["mean"] <= 1
    assert 0 < record["own_cpu_share"] < 0.5
    assert record["signals"]["memory_used_bytes"]["mean"] > 1e6
    assert "processors" in done.stderr
    assert [float(row["t_s"]) for row in rows] == sorted(float(row["t_s"]) for row in rows)
    assert "there already" in ended(environment, "--duration", 1, "--log", log, code=2).stderr


def test_a_kill_leaves_whole_rows_of_which_a_page_is_made(environment, tmp_path):
    log = tmp_path / "a.csv"
    monitor = started(environment, "--log", log)
    wait_for_rows(log, 20)
    monitor.kill()
    monitor.communicate()
    assert log.read_bytes().endswith(b"\n")
    table = read_log(log)
    assert not table.torn
    assert table.rows >= 20
    report = [sys.executable, "-m", "xttsbench", "report", str(log)]
    done = subprocess.run(report, env=environment, capture_output=True, text=True, check=True)
    assert "The processors were in use" in done.stdout
    assert f"Page: {log.with_suffix('.html')}" in done.stderr
    assert '<svg class="plot"' in log.with_suffix(".html").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_it_with_a_summary_and_its_code(number, environment, tmp_path):
    log = tmp_path / "a.csv"
    monitor = started(environment, "--log", log)
    wait_for_rows(log, 5)
    monitor.send_signal(number)
    out, err = monitor.communicate(timeout=20)
    assert monitor.returncode == 128 + number
    assert "cpu_share" in out
    assert "Traceback" not in err


def test_a_process_that_ends_ends_it_too_and_is_a_line(environment, tmp_path):
    child = subprocess.Popen([sys.executable, "-c", SLEEP])
    log = tmp_path / "a.csv"
    monitor = started(environment, "--pid", child.pid, "--log", log)
    wait_for_rows(log, 5)
    child.kill()
    child.wait()
    out, err = monitor.communicate(timeout=20)
    assert (monitor.returncode, err) == (0, "")
    assert re.search(rf"process {child.pid} \(\S+\) has ended", out)
    assert "has ended" in read_log(log).columns["event"][-1]
    assert f"--pid {child.pid}: there is no such process" in ended(environment, "--pid", child.pid, code=2).stderr


@needs_compiler
def test_gpus_that_fail_are_lines_and_come_back_and_an_oscillation_has_its_period(gpus, tmp_path):
    log, fault = tmp_path / "a.csv", Path(gpus["NVML_STUB_FAULT"])
    monitor = started(gpus, "--log", log)
    wait_for(log, b"oscillates")
    for text, said, times in (
        (f"1 {LOST}", b"GPU is lost", 1), ("", b"is read again", 1), (f"0 {HANGS}", b"has stopped answering", 1),
        ("", b"is read again", 2), (f"0 {UNKNOWN}", b"Unknown Error", 1),
    ):  # fmt: skip
        fault.write_text(text)
        wait_for(log, said, times)
    monitor.send_signal(signal.SIGINT)
    out, err = monitor.communicate(timeout=20)
    assert "Traceback" not in err
    found = re.search(r"GPU 0 utilization oscillates: it repeats every (\d+) ms", out)
    assert found
    assert int(found[1]) == pytest.approx(800, rel=0.05)
    for said in (
        "GPU 1 (Stub GPU B) cannot be read: GPU is lost", "GPU 1 (Stub GPU B) is read again",
        "GPU 0 (Stub GPU A) cannot be read: the driver has stopped answering",
        "GPU 0 (Stub GPU A) cannot be read: Unknown Error",
    ):  # fmt: skip
        assert f"] {said}" in out
    columns = read_log(log).columns
    assert columns["gpu0_throttle_reasons"][0] == "sw_power_cap hw_thermal_slowdown"
    assert columns["gpu0_pids"][0] == "1234 4321"
    assert columns["gpu0_power_w"][0] == 312.5
    failed = columns["gpu0_error"].index("Unknown Error")
    assert not any(columns["gpu0_power_w"][failed:])


@needs_compiler
def test_memory_on_gpus_and_steps_of_a_watched_run_stand_beside_the_machine(gpus, tmp_path, monkeypatch):
    monkeypatch.setenv("XTTSBENCH_RUNTIME", gpus["XTTSBENCH_RUNTIME"])
    child = subprocess.Popen([sys.executable, "-c", SLEEP])
    live = LiveRun(
        pid=child.pid, script="train.py --epochs 3", started_utc="a", updated_utc="b", over=False, steps=4321,
        recent=RecentSteps(steps=50, step_time_s=0.02, input_wait_fraction=0.25),
    )  # fmt: skip
    (tmp_path / LIVE_FILE).write_text(live.model_dump_json())
    announce(child.pid, tmp_path)
    try:
        done = ended(gpus, "--pid", child.pid, "--duration", 1.5)
    finally:
        child.kill()
        child.wait()
    assert f"process {child.pid} is a watched run: train.py --epochs 3" in done.stdout
    assert "step 4,321, 20.0 ms a step, 25 % waiting for input" in done.stdout


@needs_compiler
def test_a_driver_that_never_answers_keeps_neither_the_start_nor_the_end(gpus, tmp_path):
    Path(gpus["NVML_STUB_FAULT"]).write_text(f"0 {HANGS}")
    done = ended(gpus, "--duration", 1)
    assert "no GPU is read: the NVIDIA driver has not answered within 5 s" in done.stdout
    assert "cpu_share" in done.stdout


class Terminal:
    """The monitor in a terminal of a size."""

    def __init__(self, environment, *options, width=100, height=30):
        self.text = b""
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.execvpe(sys.executable, command(*options), environment)
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def read_until(self, pattern):
        deadline = time.monotonic() + 20
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline, self.text[-2000:]
            try:
                self.text += os.read(self.file, 65536)
            except OSError:
                break
        assert re.search(pattern, self.text), self.text[-2000:]

    def end(self):
        """Read the rest; the exit code."""
        try:
            while piece := os.read(self.file, 65536):
                self.text += piece
        except OSError:
            pass
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.file)
        return code


def test_a_terminal_is_drawn_on_and_q_ends_it(environment):
    terminal = Terminal(environment)
    terminal.read_until(rb"threads runnable.*USED BY")
    mode = termios.tcgetattr(terminal.file)
    assert not mode[3] & termios.ECHO
    os.write(terminal.file, b"q")
    terminal.read_until(rb"\x1b\[\?1049l")
    assert terminal.end() == 0
    screen, _, after = terminal.text.partition(b"\x1b[?1049l")
    assert screen.lstrip().startswith(b"\x1b[?1049h")
    assert b"\x1b[38;" in screen
    assert b"cpu_share" in after


def test_ctrl_c_leaves_the_terminal_as_it_was(environment):
    terminal = Terminal(environment | {"NO_COLOR": "1"}, width=60, height=12)
    before = termios.tcgetattr(terminal.file)
    terminal.read_until(rb"threads|CPU")
    os.write(terminal.file, b"\x03")
    terminal.read_until(rb"\x1b\[\?25h\x1b\[\?1049l")
    after = termios.tcgetattr(terminal.file)
    assert terminal.end() == 130
    assert after[:6] == before[:6]
    assert b"\x1b[38;" not in terminal.text
    assert b"Traceback" not in terminal.text
