"""The workers of a training, as variables of the environment name them, and which of them is gone."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from xttsbench.cluster import Cluster, read_cluster, unreachable
from xttsbench.errors import UsageError


def config(cluster: object, **task: object) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


TWO = {"worker": ["a:1", "b:2"]}
STEP = {
    "SLURM_STEP_NODELIST": "n[1-3]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_JOB_ID": "7",
    "SLURM_PROCID": "3",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "1",
}


@pytest.mark.parametrize(
    ("cluster", "job", "index", "found"),
    [
        (TWO, "worker", 0, Cluster(("a:1", "b:2"), 0)),
        (TWO, "worker", 1, Cluster(("a:1", "b:2"), 1)),
        ({"worker": ["a:1", "b:2"], "chief": ["c:3"]}, "worker", 1, Cluster(("c:3", "a:1", "b:2"), 2)),
        ({"worker": ["a:1", "b:2"], "chief": ["c:3"]}, "chief", 0, Cluster(("c:3", "a:1", "b:2"), 0)),
    ],
)
def test_the_chief_is_the_first_of_the_workers(cluster: object, job: str, index: int, found: Cluster) -> None:
    read = read_cluster(config(cluster, type=job, index=index))
    assert read == found
    assert read_cluster({"TF_CONFIG": read.tf_config()}) == found


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "it is not set"),
        ({"TF_CONFIG": ""}, "Expecting value"),
        ({"TF_CONFIG": "{"}, "JSONDecodeError"),
        ({"TF_CONFIG": "[]"}, "TypeError"),
        ({"TF_CONFIG": "null"}, "TypeError"),
        ({"TF_CONFIG": '{"cluster": {}}'}, "KeyError: 'task'"),
        (config(TWO), "KeyError: 'type'"),
        (config(TWO, type="worker", index=2), "index is 2, and the job 'worker' has 2"),
        (config(TWO, type="worker", index=-1), "index is -1"),
        (config(TWO | {"ps": ["c:3"]}, type="ps", index=0), "the job 'ps' has no part"),
        (config({"worker": ["a:1", "a:1"]}, type="worker", index=0), "twice"),
        (config({"worker": ["a:1", "b"]}, type="worker", index=0), "'b' is no host:port"),
        (config({"worker": ["a:1", "b:70000"]}, type="worker", index=0), "'b:70000' is no host:port"),
        (config({"worker": ["a:1", "b:\u00b2"]}, type="worker", index=0), "is no host:port"),
    ],
)
def test_what_names_no_worker_is_refused_with_an_example(variables: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match="set it to") as caught:
        read_cluster(variables)
    assert said in str(caught.value)


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name which expands the one list of nodes of these tests."""
    program = tmp_path / "scontrol"
    program.write_text('#!/bin/sh\n[ "$*" = "show hostnames n[1-3]" ] && printf "n1\\nn2\\nn3\\n"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("scontrol")
def test_a_step_of_slurm_names_its_tasks() -> None:
    cluster = read_cluster(STEP)
    assert cluster.number == 3
    assert [address.partition(":")[0] for address in cluster.addresses] == ["n1", "n1", "n2", "n2", "n3"]
    assert len(set(cluster.addresses)) == 5
    assert all(20_000 <= int(address.partition(":")[2]) < 32_768 for address in cluster.addresses)
    assert read_cluster(STEP | config(TWO, type="worker", index=1)).addresses == ("a:1", "b:2")


@pytest.mark.usefixtures("scontrol")
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"SLURM_NODEID": "0"}, "--distribution=block"),
        ({"SLURM_STEP_NODELIST": "m[1-3]"}, "returned non-zero"),
        ({"SLURM_PROCID": "5"}, "IndexError"),
    ],
)
def test_a_step_that_cannot_be_read_is_refused(changed: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match="set TF_CONFIG in its place") as caught:
        read_cluster(STEP | changed)
    assert said in str(caught.value)


SILENT = """Collective ops is aborted by: Error reported from /job:worker/task:1: The following tasks are unhealthy:
/job:worker/replica:0/task:2
The tasks have crashed."""
OF_THE_CHIEF = "Collective ops is aborted by: Deadline Exceeded\n\nRPC: /tensorflow.CoordinationService/Heartbeat"


def test_a_worker_that_is_silent_was_named_and_one_that_takes_no_connection_is_gone() -> None:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    cluster = Cluster(tuple("127.0.0.1:{1}".format(*one.getsockname()) for one in sockets), 1)
    assert cluster.lost("Connection reset by peer") == []
    assert cluster.lost(SILENT) == [2]
    assert cluster.lost(OF_THE_CHIEF) == [0]
    sockets[2].close()
    assert cluster.lost(OF_THE_CHIEF) == [2]
    for one in sockets:
        one.close()
    assert cluster.lost("") == [0, 2]
    assert cluster.lost(SILENT) == [2]  # the others heard of it earlier, and have ended


@pytest.mark.parametrize(
    ("answer", "why"),
    [(b"HTTP/1.1 400 Bad Request", "no server of gRPC"), (b"\0\0\6\4\0\0\0\0\0\0", None), (b"", "timed out")],
)
def test_what_is_no_server_of_grpc_is_told_from_one(answer: bytes, why: str | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(unreachable, "127.0.0.1:{1}".format(*server.getsockname()), 0.5, grpc=True)
        connection = server.accept()[0]
        connection.sendall(answer)
        found = asked.result()
        connection.close()
    assert (found is None) if why is None else (why in str(found))
