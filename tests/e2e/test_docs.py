"""Every command in a block of the README and of docs/ is run, as it stands, in the order of its page.

What measures is slow, and where a page gives it no budget it gets a short one. Not run: other people's code, which is
not in this repository, and ``pip install``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from xttsbench.cli.app import app
from xttsbench.cli.train import with_value_of_best
from xttsbench.xtts.data.make import make_data

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "reports" / "reference"
PAGES = {path.name: path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
PATIENCE_S = 300

STORED = {  # what a page takes as given -> the run that stands for it, unless the page makes it
    "reports/before": "bundled-workload",
    "reports/after": "bundled-workload",
    "reports/oscillation": "oscillation",
    "reports/faster": "tutorial/faster",
    "reports/20261121T080000Z-diagnose-make": "tutorial/before",
}
SHORTER = {
    "diagnose": "--budget 20",
    "optimize": "--budget 60",
    "prove": "--budget 60",
    "run": "--budget 100",
    "sweep": "--budget 120",
    "train": "--steps 5",
}
ENDS = {
    "xttsbench train tiny --data speech --steps 140 --seed 3 --out reports/run": 2,
    "xttsbench diagnose my_project/data.py:make --fail-on warning": 1,
    # There is neither a repository nor another version here; tests/e2e/test_prove.py has both.
    "xttsbench prove train.py@main train.py": 2,
    "xttsbench prove my_project/data.py:make@origin/main my_project/data.py:make --budget 200": 2,
    "xttsbench prove data.py:make faster.py:make --accelerator emulated:10": 5,
    "xttsbench prove data.py:make faster.py:make --any-order --accelerator emulated:10": 5,
    # The stored run is of another machine.
    "xttsbench plan reports/20261121T080000Z-diagnose-make --prices machines.yaml": 5,
    "xttsbench sweep --grid full --on ray:head:6379 --out reports/cluster": 2,  # there is no such cluster
    "xttsbench sweep --grid full --on ray:head:6379 --out reports/cluster --resume": 2,
}
"""Commands that a page shows to be refused, or to fail a gate, and those that lack here what they are about."""
ELSEWHERE = ("xttsbench service dispatcher", "xttsbench service worker", "xttsbench data attach s3:")
"""Beginnings of commands that do not end by themselves, or want a bucket; they have tests of their own."""

TRAIN = """
import argparse

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, required=True)
weights = tf.Variable(tf.random.normal([64, 64], seed=1) * 0.1)


@tf.function
def step(batch):
    weights.assign_sub(1e-6 * tf.matmul(batch, batch, transpose_a=True))
    return tf.reduce_mean(weights)


for _ in range(parser.parse_args().epochs):
    for batch in tf.data.Dataset.range(40_000).map(lambda i: tf.fill([64], tf.cast(i, tf.float32))).batch(16):
        step(batch)
"""


def commands(page: str) -> list[str]:
    """The commands in the blocks of a page, each in one line."""
    found, fence = [], None
    for line in PAGES[page].read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            fence = None if fence is not None else line[3:]
        elif fence == "" and re.match(r"(xttsbench|patch|pytest) ", line) and "[" not in line:
            found.append(re.sub(r" {3,}#.*| +# .*", "", line).strip())
    once = dict.fromkeys(found)
    return sorted(once, key=lambda one: one.startswith("xttsbench compare"))  # of runs that the page makes later on


def to_type(page: str) -> list[str]:
    """The commands of a page that end by themselves on this machine."""
    return [one for one in commands(page) if not one.startswith(ELSEWHERE)]


def words(command: str) -> list[str]:
    return shlex.split(command.partition(" > ")[0])


EVERY = sorted({one for page in PAGES for one in commands(page) if one.startswith("xttsbench")})


@pytest.mark.parametrize("command", EVERY)
def test_a_command_of_the_documentation_is_one(command) -> None:
    group = get_command(app)
    _, name, *rest = words(command)
    found = group.commands[name]
    if name in ("data", "service"):
        name, *rest = rest
        found = found.commands[name]
    found.make_context(name, with_value_of_best(["train", *rest])[1:] if name == "train" else rest)


def quick(command: str) -> bool:
    """Whether it measures nothing, and takes no run but those that are stored."""
    program, name, *rest = words(command)
    taken = (one.partition(":")[0] for one in rest if one.startswith("reports/"))
    return program == "xttsbench" and name not in (*SHORTER, "doctor", "watch") and all(one in STORED for one in taken)


def prepare(home: Path, to_run: list[str]) -> None:
    """A working directory in which the commands of a page can be typed."""
    (home / "bin").mkdir(parents=True)
    for name, module in {"xttsbench": "xttsbench", "pytest": "pytest -p no:cacheprovider"}.items():
        (home / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        (home / "bin" / name).chmod(0o755)
    for source in PAGES.values():  # a block that opens with a file's name is that file
        blocks = re.findall(r"^```python\n(# ([\w/]+\.py)\n.*?)^```$", source.read_text(encoding="utf-8"), re.M | re.S)
        for text, name in blocks:
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
    shutil.copytree(ROOT / "tests" / "targets", home / "tests" / "targets")
    (home / "train.py").write_text(TRAIN)
    (home / "steps.txt").write_text("19.5\n20.5\n")
    mine = PAGES["scenarios.md"].read_text(encoding="utf-8").split("```yaml\n")[1].partition("```")[0]
    (home / "mine.yaml").write_text(mine)
    asked = " ".join(to_run)
    if "data import corpus" in asked and "--out corpus" not in asked:
        make_data(home / "corpus", 8, 0, 0.5, 1.0, speakers=2)
        lines = (home / "corpus" / "metadata.csv").read_text(encoding="utf-8").splitlines(keepends=True)
        (home / "corpus" / "metadata_train.csv").write_text("".join(lines[:6]), encoding="utf-8")
        (home / "corpus" / "metadata_eval.csv").write_text("".join(lines[6:]), encoding="utf-8")
    if "--data my_data" in asked:
        make_data(home / "my_data", 8, 0, 0.5, 1.0)
    for place, run in STORED.items():
        if place in asked and f"--out {place}" not in asked:
            shutil.copytree(RUNS / run, home / place)
    if (report := home / "reports" / "after" / "report.json").exists():  # another run than the one before
        text = report.read_text(encoding="utf-8")
        report.write_text(re.sub(r'("created_utc": ")\d{4}', r"\g<1>2020", text), encoding="utf-8")


def run(command: str, home: Path) -> int:
    """Run a command in a shell, and a second worker beside it where it wants one; return its exit code."""
    name = words(command)[1]
    command = re.sub(r"(monitor .*--duration) \d+", r"\1 3", command)
    short = SHORTER.get(name, "") if command.startswith("xttsbench") else ""
    if short.split(" ")[0] not in command:
        command = command.replace(f" {name}", f" {name} {short}", 1)
    environment = os.environ | {
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XTTSBENCH_CACHE": str(home.parent / "cache"),
        "BROWSER": "true",
        "NO_COLOR": "1",
    }
    if "multi_worker" in command:
        workers = {"cluster": {"worker": ["127.0.0.1:23451", "127.0.0.1:23452"]}}
        task = [shlex.quote(json.dumps(workers | {"task": {"type": "worker", "index": at}})) for at in (0, 1)]
        command = f"TF_CONFIG={task[1]} {command} 2>&1 & TF_CONFIG={task[0]} {command}; code=$?; wait; exit $code"
    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    print(f"$ {command}\n{ended.stdout[-3000:]}exit code {ended.returncode}")
    assert "Traceback" not in ended.stdout
    return ended.returncode


def all_run(to_run: list[str], home: Path) -> None:
    prepare(home, to_run)
    for one in to_run:
        code = run(one, home)
        depends = (code == 3 and " compare " in one) or (code == 1 and " doctor" in one)  # on runs, on the machine
        assert code == ENDS.get(one, 0) or depends, one


def of_pages() -> dict[str, list[str]]:
    """The commands of each page that measures; without those of an earlier page that leave nothing behind."""
    found: dict[str, list[str]] = {}
    for page in PAGES:
        if all(map(quick, to_type(page))):
            continue
        earlier = {one for known in found.values() for one in known if "--out" not in one and " data " not in one}
        found[page] = [one for one in to_type(page) if one not in earlier]
    return {page: those for page, those in found.items() if those}


QUICK = {page: found for page in PAGES if (found := [one for one in to_type(page) if quick(one)])}
SLOW = of_pages()


@pytest.mark.parametrize("page", QUICK)
def test_what_a_page_does_without_measuring_works(page, tmp_path) -> None:
    all_run(QUICK[page], tmp_path / "home")


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.parametrize("page", SLOW)
def test_all_commands_of_a_page_work_one_after_the_other(page, tmp_path) -> None:
    all_run(SLOW[page], tmp_path / "home")
