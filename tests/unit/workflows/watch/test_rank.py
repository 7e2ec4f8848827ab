"""The file of one rank over a long run, and the report of all of them without names."""

from pathlib import Path

import pytest

from tests.unit.diagnosis.jobs import rank_run
from tests.unit.diagnosis.test_ranks import end
from xttsbench.records.ranks import RANK_FILE, CodeLine, RankPosition
from xttsbench.records.redaction import Redaction
from xttsbench.records.watch import SUMMARY_FILE
from xttsbench.workflows.ranks import RANKS_FILE, report_ranks
from xttsbench.workflows.watch.rank import RankFile


def told(loop: str, number: int, batches: int) -> dict[str, object]:
    new = {"batches": batches, "samples": 9, "looked": 9, "ended": False, "hashes": [number, 99]}
    return {
        "task": {"rank": 0, "ranks": 2, "source": "TF_CONFIG"}, "begun": 0, "ended": 0, "stride": 1,
        "collectives": [], "since_ns": 0, "sums_ns": [0, 0], "measured": 0, "below": 1 << 52,
        "passes": [[loop, number, new]], "position": None, "asks_at": None, "seconds": [],
    }  # fmt: skip


def test_of_many_passes_the_first_and_the_newest_are_kept(tmp_path: Path) -> None:
    file = RankFile(tmp_path, Redaction())
    for number in range(50):
        file.take(told("fit", number, 10))
    file.take(told("validation", 0, 100))
    found = file.record()
    assert found is not None
    assert [one.epoch for one in found.epochs] == [0, 48, 49]  # of the loop with most batches
    assert len(file._passes) == len(file._hashes) == 4


@pytest.mark.parametrize("redact", [False, True])
def test_the_report_of_ranks_leaves_out_names_and_paths_where_asked(tmp_path: Path, redact: bool) -> None:
    for number in range(2):
        place = tmp_path / f"rank-{number}"
        place.mkdir()
        line = CodeLine(file="/home/anna/secret/train.py", line=3)
        position = RankPosition(activity="collective" if number else "python", idle_s=60.0, line=line)
        run = rank_run(number, position=position).model_copy(update={"host": "annas-machine", "updated_s": 4e9})
        (place / RANK_FILE).write_text(run.model_dump_json())
        (place / SUMMARY_FILE).write_text(end().model_dump_json())
    found = report_ranks([tmp_path / "rank-0", tmp_path / "rank-1"], tmp_path, redact=redact)
    written = (tmp_path / RANKS_FILE).read_text()
    assert found.findings[0].fault == "hang"
    assert [word in written for word in ("annas-machine", "anna/secret")] == [not redact] * 2
