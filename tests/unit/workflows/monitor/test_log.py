import csv
import os
import subprocess
import sys

import pytest

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.workflows.monitor.log import Log, read_log

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
