import re

import pytest

from xttsbench.errors import NothingMeasuredError
from xttsbench.records.monitoring import columns
from xttsbench.workflows.monitor.log import Log
from xttsbench.workflows.monitor.page import write_page

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
