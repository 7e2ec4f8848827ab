"""Each of several processes knows its number, and only the first one's run holds checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xttsbench.errors import UsageError
from xttsbench.workflows.train.job import TrainRequest
from xttsbench.workflows.train.train import follower, worker_number


def cluster(**task):
    return json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": task})


@pytest.mark.parametrize("number", [0, 1])
def test_the_number_is_the_task_s(number):
    assert worker_number(cluster(type="worker", index=number)) == number


@pytest.mark.parametrize(
    "text",
    [None, "", "{", "[]", "{}", cluster(), cluster(type="worker", index=-1), cluster(type="ps", index=0), "null"],
)
def test_what_names_no_worker_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="set it to"):
        worker_number(text)


def test_a_follower_has_a_directory_beside_the_run_and_reads_its_checkpoints():
    request, leader = follower(TrainRequest(out=Path("runs/mine")), 2)
    assert (request.out, leader) == (Path("runs/mine.worker-2"), Path("runs/mine"))


def test_a_follower_has_to_be_told_where_the_run_is():
    with pytest.raises(UsageError, match="worker 1 needs --out"):
        follower(TrainRequest(), 1)
