"""What two processes of one run agree on, over a real cluster on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from xttsbench.training.step import Workers

WORKER = """
import json
import math
import os
from xttsbench.training.step import Replicas, make_strategy
from xttsbench.training.step import Workers

strategy = make_strategy("multi_worker")
workers = Workers(strategy, Replicas(strategy))
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
found = [workers.gather(value) for value in (index + 0.1, math.inf if index else -1, index == 1)]
print(json.dumps([workers.is_chief, workers.are_several, found]), flush=True)
workers.gather(0)  # until the other has printed as well
os._exit(0)
"""


def test_two_processes_see_the_values_of_both(loopback_tasks: list[str]) -> None:
    processes = []
    for config in loopback_tasks:
        command = [sys.executable, "-c", WORKER]
        environment = {**os.environ, "TF_CONFIG": config}
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    told = []
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert output, errors.decode()
        told.append(json.loads(output))
    both: list[Any] = [[0.1, 1.1], [-1, float("inf")], [0, 1]]
    assert told == [[True, True, both], [False, True, both]]


def test_a_single_process_asks_nobody() -> None:
    replicas: Any = SimpleNamespace(count=2, local=("/CPU:0", "/CPU:1"), is_chief=True)
    workers = Workers(None, replicas)
    assert not workers.are_several
    assert workers.gather(3) == [3]
