"""``xttsbench service`` as a user runs it: servers that answer, drain and end by signals, and files for clusters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.parent import ROOT, python
from xttsbench.errors import UsageError
from xttsbench.service.manifests import write

CLIENT = """
import sys
from itertools import islice
import tensorflow as tf
service = tf.data.experimental.service
data = tf.data.Dataset.range(400).apply(service.distribute(service.ShardingPolicy.DYNAMIC, sys.argv[1]))
samples = data.as_numpy_iterator()
seen = [int(one) for one in islice(samples, 200)]
print("half", flush=True)
sys.stdin.readline()
seen += [int(one) for one in samples]
print(sorted(seen) == list(range(400)), flush=True)
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that the test has started; those that still run at its end are killed."""
    found: list[subprocess.Popen[str]] = []
    yield found
    for one in found:
        with one:
            one.kill()


def run(started: list[subprocess.Popen[str]], *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, *map(str, arguments)]
    pipe = subprocess.PIPE
    started.append(
        subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdin=pipe, stdout=pipe, text=True)
    )
    return started[-1]


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.slow
def test_a_worker_that_is_asked_to_end_serves_the_epoch_to_its_end(
    started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    service = ("-m", "xttsbench", "service")
    dispatcher = run(started, *service, "dispatcher", "--host", "localhost", "--work-dir", tmp_path / "journal")
    address = line(dispatcher)
    assert address.startswith("grpc://localhost:")
    worker = run(started, *service, "worker", "--dispatcher", address, "--host", "localhost", "--json")
    assert json.loads(line(worker))["pid"] == worker.pid
    client = run(started, "-c", CLIENT, address)
    assert line(client) == "half"
    worker.send_signal(signal.SIGTERM)
    assert client.stdin is not None
    client.stdin.write("\n")
    client.stdin.flush()
    assert line(client) == "True"
    assert worker.wait(timeout=15) == 128 + signal.SIGTERM
    dispatcher.send_signal(signal.SIGINT)
    assert dispatcher.wait(timeout=15) == 128 + signal.SIGINT


UNDER_NOHUP = """
import signal, types
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from xttsbench.service import __main__ as door, servers
servers.dispatcher = lambda: types.SimpleNamespace(bound_port=lambda: 1, stop=lambda: None)
raise SystemExit(door.run("dispatcher", {"host": "here", "drain_s": 0.0, "as_json": False}))
"""


def test_under_nohup_a_server_outlives_its_terminal(started: list[subprocess.Popen[str]]) -> None:
    server = run(started, "-c", UNDER_NOHUP)
    assert line(server) == "grpc://here:1"
    server.send_signal(signal.SIGHUP)
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=15) == 128 + signal.SIGTERM


def test_a_file_for_a_cluster_asks_for_memory_and_for_a_version(tmp_path: Path) -> None:
    script = write("slurm", tmp_path, 2, 4000, 1, "image", "2.21.0").read_text("utf-8")
    assert "--mem-per-cpu=1M" in script  # 0 is all of the node's
    with pytest.raises(UsageError, match="none is"):
        write("slurm", tmp_path, 2, 4, 1, "image", None)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("worker", "--dispatcher", "localhost:1", "--wait", "0"), 1, "no dispatcher answered at localhost:1"),
        (("worker", "--dispatcher", "localhost"), 2, "--dispatcher is HOST:PORT, not 'localhost'"),
        (("worker", "--dispatcher", "localhost:\u00b2"), 2, "--dispatcher is HOST:PORT"),
        (("worker", "--dispatcher", "a..b:1", "--wait", "0"), 1, "no dispatcher answered at a..b:1"),
        (("dispatcher", "--tensorflow", "2.0.0"), 1, "--tensorflow asks for 2.0.0"),
        (("manifests", "--workers", "2", "--out", "x", "--format", "nomad"), 2, "kubernetes or slurm, not 'nomad'"),
        (("manifests", "--workers", "2", "--out", "x", "--image", "a b"), 2, "no name of a container image"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tmp_path: Path, options: tuple[str, ...], code: int, said: str) -> None:
    done = python("-m", "xttsbench", "service", *options, cwd=tmp_path)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_the_kubernetes_file_is_valid(tmp_path: Path) -> None:
    schema = pytest.importorskip("kubernetes_validate", reason="22 MB of schemas: pip install kubernetes-validate")
    python("-m", "xttsbench", "service", "manifests", "--workers", 3, "--out", tmp_path)
    for one in yaml.safe_load_all((tmp_path / "service.yaml").read_text("utf-8")):
        for version in ("1.28", "1.34"):
            schema.validate(one, version, strict=True)


def test_the_kubernetes_file_has_the_workers_that_were_asked_for(tmp_path: Path) -> None:
    done = python("-m", "xttsbench", "service", "manifests", "--workers", 3, "--cores", 2, "--out", tmp_path)
    file = tmp_path / "service.yaml"
    assert done.stdout.strip() == str(file)
    text = file.read_text("utf-8")
    assert "NEVER RUN ON A CLUSTER" in text
    objects = list(yaml.safe_load_all(text))
    assert [one["kind"] for one in objects] == ["Service", "StatefulSet"] * 2
    assert objects[3]["spec"]["replicas"] == 3


def test_the_slurm_script_is_one_that_bash_can_read(tmp_path: Path) -> None:
    python("-m", "xttsbench", "service", "manifests", "--workers", 3, "--format", "slurm", "--out", tmp_path)
    script = tmp_path / "service.sbatch"
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert "#SBATCH --ntasks=5" in script.read_text("utf-8")
