"""The Slurm script of ``xttsbench service manifests``, run by Debian's own Slurm on one node; writes JSON.

``python benchmarks/service_slurm.py [--out FILE]``, as root, after ``apt-get install slurm-wlm munge``: starts munged,
slurmctld and slurmd with a configuration of its own in a temporary folder, submits the script with a training that
reads one epoch from the service, and stops them again. One node, so that what a network between nodes would change is
not seen.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

OUT = Path(__file__).parents[1] / "reports" / "reference" / "scale" / "slurm.json"
WORKERS, SAMPLES, JOB_S = 2, 400, 400
CPUS = 8  # more tasks than this machine may have cores
CONFIGURATION = """\
ClusterName=xttsbench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=8192 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
TRAINING = f"""\
import json, os
from collections import Counter
import tensorflow as tf
service = tf.data.experimental.service
data = tf.data.Dataset.range({SAMPLES}).apply(
    service.distribute(service.ShardingPolicy.DYNAMIC, os.environ["TF_DATA_SERVICE"]))
visits = Counter(int(one) for one in data.as_numpy_iterator())
found = {{"samples": len(visits), "most_visits": max(visits.values()), "node": os.environ["SLURMD_NODENAME"]}}
open("found.json", "w").write(json.dumps(found))
"""


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Run a cluster of this one node; yields the variables with which Slurm's commands find it."""
    host = platform.node().partition(".")[0]
    with socket.socket() as first, socket.socket() as second:
        first.bind(("", 0))
        second.bind(("", 0))
        ports = first.getsockname()[1], second.getsockname()[1]
    text = CONFIGURATION.format(host=host, folder=folder, cpus=CPUS, ports=ports)
    (folder / "slurm.conf").write_text(text, "utf-8")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
    munged = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munged += [f"--{name}={folder}/munged.{name}" for name in ("pid-file", "seed-file", "log-file")]
    started = []
    try:
        for command in (munged, ["slurmctld", "-D"], ["slurmd", "-D", "-N", host]):
            output = (folder / f"{command[0]}.out").open("wb")
            path = shutil.which(command[0], path=os.environ["PATH"] + ":/usr/sbin")
            if path is None:
                sys.exit(f"{command[0]} is missing: apt-get install slurm-wlm munge")
            started.append(subprocess.Popen([path, *command[1:]], env=environment, stdout=output, stderr=output))
            time.sleep(2)
        yield environment
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def call(environment: dict[str, str], *command: str | Path) -> str:
    """Output of a command of Slurm's."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def state(environment: dict[str, str], job: str) -> dict[str, str]:
    """The fields of a job."""
    words = call(environment, "scontrol", "show", "job", job).split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def main() -> None:
    """Run the job and write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    manifests = [sys.executable, "-m", "xttsbench", "service", "manifests", "--workers", str(WORKERS), "--cores", "1"]
    manifests += ["--memory", "1", "--format", "slurm", "--out", str(folder)]
    subprocess.run(manifests, check=True)
    (folder / "train.py").write_text(TRAINING, "utf-8")
    with slurm(folder) as environment:
        submit = ("sbatch", "--parsable", f"--chdir={folder}", folder / "service.sbatch", sys.executable, "train.py")
        started_s = time.monotonic()
        os.chdir(folder)
        job = call(environment, *submit)
        end = started_s + JOB_S
        while (found := state(environment, job))["JobState"] in ("PENDING", "RUNNING", "COMPLETING"):
            if time.monotonic() > end:
                break
            time.sleep(1)
        took_s = time.monotonic() - started_s
        log = next(folder.glob("tf-data-service-*.log"), None)
        print(log.read_text("utf-8", "replace")[-3000:] if log else (folder / "slurmctld.log").read_text()[-3000:])
        left = [
            one.pid for one in psutil.process_iter(["cmdline"]) if "xttsbench.service" in (one.info["cmdline"] or ())
        ]
        seen = json.loads((folder / "found.json").read_text()) if (folder / "found.json").exists() else {}
        result = {
            "command": "python benchmarks/service_slurm.py",
            "slurm": call(environment, "sinfo", "--version"),
            "nodes": 1,
            "tasks": int(found["NumTasks"]),
            "workers": WORKERS,
            "state": found["JobState"],
            "exit_code": found["ExitCode"],
            "took_s": round(took_s, 1),
            "samples": SAMPLES,
            "seen": seen.get("samples"),
            "most_visits": seen.get("most_visits"),
            "servers_left_running": len(left),
        }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
