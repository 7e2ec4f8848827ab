from __future__ import annotations

import csv
import os
import re
import subprocess
import sys

import pytest

from xttsbench.errors import InvalidInputError, NothingMeasuredError, UsageError
from xttsbench.records.machine import columns
from xttsbench.workflows.monitor.log import Log, read_log, write_page

COLUMNS = ("time_utc", "t_s", "cpu_share", "top1_name", "memory_used_bytes", "event")


def written(path, *readings):
    log = Log(str(path), COLUMNS)
    for at, reading in enumerate(readings):
        log.write({"time_utc": "2026-01-01T00:00:00.000+00:00", "t_s": float(at)} | reading)
    log.close()
    return path


def test_what_is_written_is_read_again(tmp_path):
    path = written(
        tmp_path / "a.csv",
        {"cpu_share": 1 / 3, "memory_used_bytes": 25_276_063_744},
        {"event": 'a, "b"; c', "t_s": 4000.125},
    )
    table = read_log(path)
    assert table.rows == 2
    assert table.columns["cpu_share"] == [pytest.approx(1 / 3, abs=1e-5), None]
    assert table.columns["memory_used_bytes"] == [25_276_063_744, None]
    assert table.columns["event"] == [None, 'a, "b"; c']
    assert table.columns["t_s"] == [0.0, 4000.125]
    assert not table.torn


@pytest.mark.parametrize("name", ["=1+1", "+cmd|' /C calc'!A0", "-2", "@SUM(A1)", "\t=1", "a\x1b[31m\nb,c\r"])
def test_names_are_no_formulas_no_controls_and_no_lines(name, tmp_path):
    path = written(tmp_path / "a.csv", {"top1_name": name})
    rows = list(csv.reader(path.read_text().splitlines(keepends=True)))
    assert len(rows) == 2
    assert rows[1][3][0] not in "=+-@"
    assert rows[1][3].isprintable()


def test_a_torn_last_row_is_passed_over(tmp_path):
    path = written(tmp_path / "a.csv", {"cpu_share": 0.5}, {"cpu_share": 0.25})
    path.write_bytes(path.read_bytes()[:-9])
    table = read_log(path)
    assert table.columns["cpu_share"] == [0.5]
    assert table.torn


def test_a_file_that_is_there_is_kept(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("mine")
    with pytest.raises(UsageError, match="there already"):
        Log(str(path), COLUMNS)
    assert path.read_text() == "mine"


FULL = """
import resource, signal, sys
from xttsbench.errors import UsageError
from xttsbench.workflows.monitor.log import Log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
log = Log(sys.argv[1], ("time_utc", "t_s", "event"))
try:
    for at in range(1000):
        log.write({"time_utc": "now", "t_s": float(at), "event": "x" * 50})
except UsageError as error:
    print(error)
"""


def test_a_full_disk_leaves_whole_rows_and_is_said_in_a_sentence(tmp_path):
    path = tmp_path / "a.csv"
    done = subprocess.run([sys.executable, "-c", FULL, path], capture_output=True, text=True, check=True)
    assert "cannot be written any more: File too large" in done.stdout
    assert path.read_bytes().endswith(b"\n")
    table = read_log(path)
    assert table.rows > 10
    assert not table.torn


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n1,2\n",
        "time_utc,t_s,t_s\n",
        "time_utc,t_s,cpu_share\nx,1\n",
        "time_utc,t_s\nx,one\n",
        "time_utc,t_s\nx,nan\n",
    ],
)
def test_what_is_no_log_is_refused_in_a_sentence(text, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InvalidInputError, match="no log of xttsbench monitor"):
        read_log(tmp_path / "a.csv")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_log(tmp_path / "a.csv")


def test_a_row_is_in_the_file_as_soon_as_it_is_written(tmp_path):
    log = Log(str(tmp_path / "a.csv"), COLUMNS)
    log.write({"time_utc": "now", "t_s": 0.0})
    assert read_log(tmp_path / "a.csv").rows == 1
    assert os.stat(tmp_path / "a.csv").st_mode & 0o111 == 0
    log.close()


HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def log(tmp_path):
    names = columns(cores=[0, 1], disks=["vda"], gpus=[0], process=False)
    made = Log(str(tmp_path / "a.csv"), names)
    for at in range(200):
        reading = {
            "time_utc": "2026-01-01T00:00:00.000+00:00", "t_s": at * 0.1,
            "cpu_share": 0.25, "cpu0_share": 0.5, "cpu1_share": 0.0,
            "gpu0_name": "Some GPU", "gpu0_utilization": 0.9 if at % 16 < 8 else 0.1,
        }  # fmt: skip
        if at % 10 == 0:
            reading |= {"top1_name": HOSTILE, "top1_pid": 77, "top1_cpus": 0.5, "unseen_cpus": 0.0}
        made.write(reading | ({"event": "GPU 0 is lost"} if at == 50 else {}))
    made.close()
    return tmp_path / "a.csv"


def test_the_page_has_what_was_seen_and_the_sentence_says_what_stands_out(log):
    page = write_page(log)
    assert page.record.readings == 200
    assert page.record.signals["gpu0_utilization"].mean == pytest.approx(0.5, abs=0.02)
    assert [(one.column, round(one.period_s, 1)) for one in page.record.oscillations] == [("gpu0_utilization", 1.6)]
    assert [(event.t_s, event.text) for event in page.record.events] == [(5.0, "GPU 0 is lost")]
    assert page.record.unmeasured["gpu0_power_w"] == "no reading of it in the log"
    assert page.document.headline.sentence.startswith("GPU 0 was used 51.6 %")
    html = page.file.read_text()
    assert page.file.name == "a.html"
    assert HOSTILE not in html
    assert "&lt;script&gt;alert(1)" in html
    assert len(re.findall(r'<svg class="plot"', html)) == 2  # the GPU and the processors; nothing else was read
    assert "GPU 0 is lost" in html
    assert re.search(r"77</td>\s*<td[^>]*>0.500", html)


def test_a_log_without_a_row_measured_nothing(log):
    log.write_text(log.read_text().splitlines()[0] + "\n")
    with pytest.raises(NothingMeasuredError, match="no reading"):
        write_page(log)
