import pytest
from rich.cells import cell_len

from xttsbench.analysis.stream import Stream
from xttsbench.records.machine import ColumnOscillation, Event, columns, oscillating
from xttsbench.reporting.screen import line, screen, written

READING = {
    "t_s": 1.0, "cpu_share": 0.5, "cpu_steal_share": 0.04, "cpu0_share": 1.0, "cpu1_share": 0.0, "runnable_threads": 3,
    "memory_used_bytes": 2 << 30, "memory_total_bytes": 8 << 30, "storage_read_bytes_per_s": 3 << 20,
    "storage_write_bytes_per_s": 0.0, "storage_busy_share": 0.1,
    "top1_name": "python \x1b[2Jtrain.py", "top1_pid": 42, "top1_cpus": 0.9,
    "gpu0_name": "Some GPU", "gpu0_utilization": 0.25,
    "gpu0_memory_used_bytes": 1 << 30, "gpu0_memory_total_bytes": 16 << 30,
    "gpu0_power_w": 312.5, "gpu0_throttle_reasons": "sw_power_cap",
    "gpu1_name": "Other GPU", "gpu1_error": "GPU is lost",
    "process_name": "python train.py", "process_pid": 42, "process_cpus": 1.5, "process_memory_bytes": 1 << 30,
    "process_steps": 12345, "process_step_time_s": 0.02, "process_input_wait_share": 0.5,
}  # fmt: skip


@pytest.fixture
def stream():
    names = columns(cores=range(2), disks=["vda"], gpus=[0, 1], process=True)
    made = Stream(names, oscillating(names), 0.5)
    made.take(READING)
    made.events.append(Event(t_s=1.0, text="GPU 1 (Other GPU) cannot be read: GPU is lost"))
    made.oscillations["gpu0_utilization"] = ColumnOscillation(
        column="gpu0_utilization", t_s=1.0, period_s=1.6, variance_share=0.9, p_value=0.005
    )
    return made


def texts(stream, width=110, height=40):
    lines = screen(stream, width=width, height=height, host="here", own_cpu_share=0.006)
    return [written(one, width, None) for one in lines]


def test_a_line_has_all_that_matters(stream):
    said = line(stream)
    for part in (
        "[1.0 s] processors 50 %", "4 % stolen", "memory 2.00 GiB of 8.00 GiB",
        "storage 3.00 MiB/s read, 0 B/s written",
        "GPU 0 25 %; 1.00 GiB; 312 W; sw_power_cap", "GPU 1 cannot be read (GPU is lost)", "process 1.50 processors",
        "step 12,345, 20.0 ms a step, 50 % waiting for input",
    ):  # fmt: skip
        assert part in said


def test_the_screen_shows_each_thing_on_its_line(stream):
    shown = texts(stream)
    text = "\n".join(shown)
    assert len(shown) == 40
    assert "itself 0.60 % of a processor" in shown[0]
    for part in ("4 % stolen", "0 ███████████ 100 %", "1 ···········   0 %", "cannot be read: GPU is lost"):
        assert part in text
    assert "GPU 0 utilization repeats every 1.60 s: 90% of its" in text
    assert "0.90  python train.py  42" in text
    assert "step 12,345" in text
    assert "EVENTS" in text


@pytest.mark.parametrize(("width", "height"), [(20, 3), (40, 10), (80, 24), (300, 100)])
def test_it_fits_any_terminal_and_moves_no_cursor(stream, width, height):
    shown = texts(stream, width, height)
    assert len(shown) == height
    assert all(cell_len(one) <= width and one.isprintable() for one in shown)


def test_many_processors_take_a_cell_each():
    names = columns(cores=range(192), disks=[], gpus=[], process=False)
    stream = Stream(names, oscillating(names), 0.5)
    stream.take({"t_s": 0.0} | {f"cpu{n}_share": n / 191 for n in range(192)})
    shown = [one for one in texts(stream, width=105) if "█" in one or "▁" in one]
    assert len(shown) == 2
    assert shown[1].strip().endswith("█")


def test_before_the_first_reading_nothing_is_made_up():
    names = columns(cores=range(2), disks=["vda"], gpus=[0], process=False)
    shown = "\n".join(texts(Stream(names, oscillating(names), 0.5)))
    assert "0 %" not in shown.replace("itself 0.60 %", "")
