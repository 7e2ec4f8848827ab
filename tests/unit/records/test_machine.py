from pathlib import Path

from xttsbench.records.machine import COLUMNS, columns, is_text, oscillating, spoken


def test_the_columns_of_a_machine_are_in_order_and_those_of_one_thing_together():
    found = columns(cores=[0, 1], disks=["vda"], gpus=[0, 1], process=True)
    assert found[:2] == ("time_utc", "t_s")
    assert found[-1] == "event"
    assert len(set(found)) == len(found)
    first, second = found.index("gpu0_name"), found.index("gpu1_name")
    assert all(name.startswith("gpu0_") for name in found[first:second])
    assert {"cpu0_share", "cpu1_share", "disk_vda_busy_share", "top3_cpus", "process_steps"} <= set(found)
    assert len([name for name in found if name.startswith("gpu0_")]) == len(
        [n for n in COLUMNS if n.startswith("gpu<")]
    )


def test_a_machine_without_gpus_and_process_has_none_of_their_columns():
    found = columns(cores=[0], disks=[], gpus=[], process=False)
    assert not [name for name in found if name.startswith(("gpu", "process", "disk"))]


def test_words_are_told_from_numbers():
    found = columns(cores=[0], disks=["vda"], gpus=[3], process=True)
    assert [name for name in found if is_text(name)] == [
        "time_utc", "top1_name", "top2_name", "top3_name",
        "gpu3_name", "gpu3_throttle_reasons", "gpu3_pids", "gpu3_error", "process_name", "event",
    ]  # fmt: skip


def test_oscillations_are_looked_for_where_they_mean_something():
    found = oscillating(columns(cores=[0], disks=["vda"], gpus=[0, 1], process=True))
    assert found == ("cpu_share", "storage_read_bytes_per_s", "gpu0_utilization", "gpu1_utilization", "process_cpus")
    assert spoken("gpu1_utilization") == "GPU 1 utilization"


def test_the_page_of_the_documentation_has_every_column():
    page = (Path(__file__).parents[3] / "docs" / "monitor.md").read_text(encoding="utf-8")
    assert [row for name, meaning in COLUMNS.items() if (row := f"| `{name}` | {meaning} |\n") not in page] == []
