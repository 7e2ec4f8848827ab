"""The service on this machine: what it yields, its quotas, kills, and that it ends with whoever started it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import psutil
import pytest
import tensorflow as tf

from xttsbench.errors import ServiceError
from xttsbench.service import Cluster, loopback
from xttsbench.service import quota as quotas

SAMPLES = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with loopback(2) as started:
        yield started


def distributed(cluster: Cluster, dataset: tf.data.Dataset, policy: str = "distributed_epoch") -> tf.data.Dataset:
    return dataset.apply(tf.data.experimental.service.distribute(policy, cluster.target))


def read(dataset: tf.data.Dataset, most: int | None = None) -> Counter[int]:
    return Counter(int(one) for one in islice(dataset.as_numpy_iterator(), most))


def test_each_sample_comes_once_with_dynamic_sharding_and_once_a_worker_without(cluster: Cluster) -> None:
    samples = tf.data.Dataset.range(SAMPLES)
    assert read(distributed(cluster, samples)) == dict.fromkeys(range(SAMPLES), 1)
    assert read(distributed(cluster, samples, "parallel_epochs")) == dict.fromkeys(range(SAMPLES), 2)


def test_a_dispatcher_that_was_killed_goes_on_in_the_middle_of_an_epoch_and_a_new_worker_joins(
    cluster: Cluster,
) -> None:
    samples = iter(distributed(cluster, tf.data.Dataset.range(SAMPLES)).as_numpy_iterator())
    seen = Counter(int(one) for one in islice(samples, 10))
    before = cluster.dispatcher
    cluster.stop_dispatcher()
    assert before not in psutil.pids()
    cluster.restart_dispatcher()
    added = cluster.add_worker()
    seen.update(int(one) for one in samples)
    cluster.kill_worker(added)
    assert cluster.workers[added] is None
    cluster.restart_worker(added)  # later epochs, too, would wait for it for ever
    assert set(seen) <= set(range(SAMPLES))
    assert max(seen.values()) == 1


def test_a_python_function_is_refused_and_a_table_is_copied(cluster: Cluster) -> None:
    samples = tf.data.Dataset.range(SAMPLES)
    numbers = tf.range(SAMPLES, dtype=tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(numbers, numbers * 2), -1)
    doubled = distributed(cluster, samples.map(table.lookup))
    assert read(doubled) == dict.fromkeys(range(0, 2 * SAMPLES, 2), 1)
    in_python = samples.map(lambda one: tf.numpy_function(lambda found: found, [one], tf.int64))
    with pytest.raises(tf.errors.InvalidArgumentError):
        read(distributed(cluster, in_python))


@pytest.mark.parametrize("policy", ["distributed_epoch", "parallel_epochs"])
def test_with_a_worker_killed_and_started_again_nothing_is_doubled_in_one_way_and_nothing_lost_in_the_other(
    cluster: Cluster, policy: str
) -> None:
    samples = iter(distributed(cluster, tf.data.Dataset.range(SAMPLES), policy).as_numpy_iterator())
    seen = Counter(int(one) for one in islice(samples, 10))
    cluster.kill_worker(0)
    cluster.restart_worker(0)
    seen.update(int(one) for one in samples)
    if policy == "distributed_epoch":
        assert max(seen.values()) == 1
    else:
        assert set(seen) == set(range(SAMPLES))


@pytest.mark.parametrize("kind", ["of the kernel", "stops"])
def test_a_worker_keeps_to_its_cores(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "stops":
        monkeypatch.setattr(quotas, "_parents", list)
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        quota = quotas.Quota(burner.pid, 0.25)
        quota_used = _used(quota, burner.pid)
        quota.set(0.1)
        assert _used(quota, burner.pid) < quota_used
        assert quota_used < 0.35
    finally:
        burner.kill()
        burner.wait()
        quota.close()
    assert kind != "stops" or quota.kind == kind


def _used(quota: quotas.Quota, pid: int) -> float:
    """Cores used over a second."""
    clock, end = (~pid << 3) | 2, time.monotonic() + 1
    before = time.clock_gettime(clock)
    while time.monotonic() < end:
        if quota.kind == "stops":
            quota.tick()
        time.sleep(quotas.TICK_S)
    return time.clock_gettime(clock) - before


def test_the_servers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    script = (
        "import time; from pathlib import Path; from xttsbench.service import loopback\n"
        f"with loopback(1, cores=0.5, folder=Path({str(tmp_path)!r})) as cluster:\n"
        "    print(*cluster.pids, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        servers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(servers) == 2
        assert {os.getpgid(one.pid) for one in servers} == {parent.pid}
        parent.send_signal(signal.SIGKILL)
        end = time.monotonic() + 1
        while (alive := [one for one in servers if _runs(one)]) and time.monotonic() < end:
            time.sleep(0.01)
    assert not alive


def _runs(process: psutil.Process) -> bool:
    """Whether it has not ended; nobody may have waited for it yet."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_server_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("no folder")
    with pytest.raises(ServiceError, match=r"dispatcher of the tf\.data service did not start .*dispatcher\.log"):
        loopback(1, folder=tmp_path).__enter__()


def test_a_nursery_that_ends_before_it_reads_a_request_is_told_with_its_log(tmp_path: Path) -> None:
    cluster = object.__new__(Cluster)
    cluster._folder, (cluster._control, theirs) = tmp_path, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    cluster._send({"kill": 1})
    theirs.close()
    with cluster._control, pytest.raises(ServiceError, match=r"has ended; its log is .*start\.log"):
        cluster.answer()
