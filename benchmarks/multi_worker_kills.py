"""Two workers of ``xttsbench train --strategy multi_worker`` on loopback, killed again and again; prints JSON.

``python benchmarks/multi_worker_kills.py [--kills 50] [--seed 0] [--folder DIR]``: one run of ``tiny`` is left alone.
Another has a process killed (SIGKILL) and is started again that many times: the training process of a worker (which
some turns stop first, with SIGSTOP, as a machine that hangs), or its whole command, or both commands; while they start,
in the middle of training, or while a checkpoint is being written. In the end both runs must have consumed the same
samples and hold the same weights and optimizer, bit by bit, on both workers. What is timed: from the kill to the end of
the other worker's training process, and of its command. A third run is of one process that accumulates two batches:
after 20 steps its weights are compared with those of two workers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from xttsbench.execution.journal import read_history
from xttsbench.training.checkpoints import Checkpoints
from xttsbench.xtts.data.make import make_data

STEPS, COMPARED_STEPS = 600, 20
VICTIMS = ("trainer 0", "trainer 1", "stopped 0", "stopped 1", "command 0", "command 1", "both commands")
MOMENTS = {"starting": 0.3, "training": 0.4, "writing": 0.3}
"""Moment -> share of the kills."""
STARTS_S, LONGEST_S, WAITS_S = 15.0, 300.0, 25.0
SETTINGS = ("batch_size=4", "training.log_every=5", "training.evaluate_every=100000", "model.layers=1")
SETTINGS += ("model.guided_layers=1",)
FAIRLY = ("--no-listening", "--checkpoint-every", "3", *(part for one in SETTINGS for part in ("--set", one)))


def tasks() -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    workers = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    cluster = {"worker": workers}
    return [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}) for index in range(2)]


class Worker:
    """A command under way, and what it says."""

    def __init__(self, folder: Path, run: str, number: int, task: str | None, *arguments: str) -> None:
        self.number, self.task, self.arguments = number, task, arguments
        self.directory = folder / (f"{run}.worker-{number}" if number else run)
        strategy = () if task is None else ("--strategy", "multi_worker")
        self.log = (folder / f"{run}-{number}.log").open("w+")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "xttsbench",
                "train",
                "--data",
                "data",
                "--out",
                run,
                *FAIRLY,
                *strategy,
                *arguments,
            ],
            cwd=folder,
            env={**os.environ, "XTTSBENCH_CACHE": "cache", **({} if task is None else {"TF_CONFIG": task})},
            stdout=self.log,
            stderr=self.log,
        )

    @property
    def trainer(self) -> psutil.Process | None:
        """Its training process, where it has started one that goes on."""
        try:
            children = psutil.Process(self.process.pid).children()
            return next((one for one in children if "xttsbench.worker.training" in one.cmdline()), None)
        except psutil.Error:
            return None

    @property
    def intervals(self) -> int:
        return sum(line.interval is not None for line in read_history(self.directory))

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read()


def started(folder: Path, run: str, *arguments: str) -> list[Worker]:
    return [Worker(folder, run, number, task, *arguments) for number, task in enumerate(tasks())]


def finish(workers: list[Worker]) -> None:
    for worker in workers:
        if worker.process.wait(LONGEST_S):
            raise SystemExit(worker.said())


def wait_for(moment: str, workers: list[Worker], rng: random.Random) -> None:
    """Wait for the moment of a kill; ends where the run is over."""
    if moment == "starting":
        time.sleep(rng.uniform(0.5, STARTS_S))
        return
    chief = workers[0]
    before, until = chief.intervals, time.monotonic() + LONGEST_S
    while chief.intervals == before:
        if time.monotonic() > until or any(worker.process.poll() is not None for worker in workers):
            raise SystemExit("\n".join(worker.said() for worker in workers))
        time.sleep(0.05)
    if moment == "training":
        time.sleep(rng.uniform(0, 1.0))
        return
    skipped = rng.randrange(3)
    while skipped >= 0 and chief.process.poll() is None:
        if any(chief.directory.glob("checkpoints/.step-*.draft")):
            time.sleep(rng.uniform(0, 0.01))
            skipped -= 1


def kill(victim: str, workers: list[Worker]) -> list[int]:
    """Kill; returns the numbers of the workers whose command or trainer that was."""
    what, _, number = victim.partition(" ")
    hit = [0, 1] if what == "both" else [int(number)]
    for one in hit:
        trainer = workers[one].trainer
        if what == "stopped" and trainer is not None:
            trainer.suspend()
        elif what == "trainer" and trainer is not None:
            trainer.kill()
        else:
            workers[one].process.kill()
    return hit


def after(kill_s: float, worker: Worker, patience_s: float) -> dict[str, Any]:
    """How the other worker ended, in seconds from the kill; nothing where it still runs after that patience."""
    found: dict[str, Any] = {}
    while time.monotonic() < kill_s + patience_s:
        if "trainer_s" not in found and worker.trainer is None:
            found["trainer_s"] = round(time.monotonic() - kill_s, 2)
        if worker.process.poll() is not None:
            said = worker.said()
            named = re.search(r"worker (\d) \(\S+\) does not answer", said)
            return found | {
                "command_s": round(time.monotonic() - kill_s, 2),
                "exit_code": worker.process.returncode,
                "names": int(named[1]) if named else None,
                "last_line": next((line for line in reversed(said.splitlines()) if line), "")[:200],
            }
        time.sleep(0.02)
    return {}


def killed_run(folder: Path, kills: int, seed: int) -> list[dict[str, Any]]:
    """A run that is killed so many times and ends; those before a benchmark was cut count."""
    arguments, journal = ("--steps", str(STEPS)), folder / "kills.jsonl"
    found = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    workers = started(folder, "killed", *arguments)
    for count in range(len(found), kills):
        rng = random.Random(f"{seed} {count}")
        moment = rng.choices(list(MOMENTS), list(MOMENTS.values()))[0]
        victim = rng.choice(VICTIMS)
        wait_for(moment, workers, rng)
        kill_s, hit = time.monotonic(), kill(victim, workers)
        one: dict[str, Any] = {"moment": moment, "victim": victim}
        for worker in workers:
            if worker.number in hit:
                continue
            # While it starts it waits for the others, however long that takes: then the victim alone is started again.
            one["other"] = after(kill_s, worker, WAITS_S if moment == "starting" else LONGEST_S)
            if not one["other"] and moment != "starting":
                raise SystemExit(f"kill {count} ({victim}, {moment}): worker {worker.number} hangs\n{worker.said()}")
            one["waited"] = not one["other"]
        for number in hit:
            if victim.startswith("stopped"):
                workers[number].process.kill()
            workers[number].process.wait(LONGEST_S)
        if one.get("waited"):
            (number,) = hit
            workers[number] = Worker(folder, "killed", number, workers[number].task, *arguments)
        else:
            workers = started(folder, "killed", *arguments)
        entries = Checkpoints(folder / "killed" / "checkpoints", 2).entries
        one["newest_step"] = entries[-1].step if entries else None
        found.append(one)
        with journal.open("a") as lines:
            lines.write(json.dumps(one) + "\n")
        print(f"{count + 1}: {json.dumps(one)}", file=sys.stderr, flush=True)
    finish(workers)
    return found


def weights(folder: Path, run: str) -> dict[str, np.ndarray]:
    newest = Checkpoints(folder / run / "checkpoints", 2).newest(print)
    assert newest is not None
    return newest.weights


def compared(folder: Path) -> dict[str, Any]:
    """Two workers beside one process with the same global batch, after some steps."""
    steps = ("--steps", str(COMPARED_STEPS))
    finish(started(folder, "two", *steps))
    finish([Worker(folder, "alone", 0, None, "--accumulation", "2", *steps)])
    two, alone = weights(folder, "two"), weights(folder, "alone")
    samples = [Checkpoints(folder / run / "checkpoints", 2).entries[-1].samples_sha256 for run in ("two", "alone")]
    return {
        "steps": COMPARED_STEPS,
        "same_samples": samples[0] == samples[1],
        "largest_difference_of_a_weight": max(float(np.abs(two[name] - alone[name]).max()) for name in two),
        "largest_weight": max(float(np.abs(one).max()) for one in two.values()),
    }


def spread(values: list[float]) -> dict[str, float] | None:
    values = sorted(values)
    return {"median": statistics.median(values), "most": values[-1], "count": len(values)} if values else None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="Keeps all files; named again, a benchmark that was cut goes on.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = asked.folder or Path(text)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "data").exists():
            make_data(folder / "data", 40, 1, 0.6, 1.2)
        finish(started(folder, "whole", "--steps", str(STEPS)))
        kills = killed_run(folder, asked.kills, asked.seed)
        ends = {
            f"{run}, worker {number}": next(
                line.ended for line in reversed(read_history(directory)) if line.ended is not None
            ).model_dump(mode="json")
            for run in ("whole", "killed")
            for number, directory in enumerate((folder / run, folder / f"{run}.worker-1"))
        }
        ended = [one for one in kills if one.get("other") and one["moment"] != "starting"]
        timed = {
            what: [one["other"] for one in ended if one["victim"].startswith("stopped") == (what == "stopped")]
            for what in ("killed", "stopped")
        }
        print(
            json.dumps(
                {
                    "steps": STEPS,
                    "kills": len(kills),
                    "seed": asked.seed,
                    "equal_to_the_bit": len({json.dumps(end, sort_keys=True) for end in ends.values()}) == 1,
                    "ends": ends,
                    "two_workers_beside_one_process": compared(folder),
                    "seconds_to_the_end_of_the_other": {
                        f"{what}, {process}": spread([one[f"{process}_s"] for one in others])
                        for what, others in timed.items()
                        for process in ("trainer", "command")
                    },
                    "right_worker_named": f"{sum(one['other']['names'] == int(one['victim'][-1]) for one in ended)} of "
                    f"{len(ended)}",
                    "started_again_alone": sum(bool(one.get("waited")) for one in kills),
                    "each": kills,
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
