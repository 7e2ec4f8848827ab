"""What `xttsbench watch` costs, whether it agrees with `xttsbench diagnose`, and what it holds; prints JSON.

``python benchmarks/watch.py cost [5|50 ...] [--loop ...]``: steps that sleep 5 and 50 ms, watched and not in turn
within a process. ``us_per_step`` is what a step takes longer outside of its sleep, by the clock, plus the processor
time of the watch's own threads (samples, polls), as if the step waited for all of it. ``cpu_us_per_step`` is the
processor time of all threads of the process, so also what stamps cost the threads of TensorFlow. Goals for the former:
1 % of 5 ms, 0.2 % of 50 ms. ``agreement [NAME ...]``: the scripts of
``benchmarks/scripts``, unmodified: what the end of a watched run calls likely beside what ``diagnose`` proves (goal: 11
of 12), and whether the last loss is the same to the last bit with and without. ``memory``: a loop of a million steps;
resident memory of it and of who watches, at a tenth, half and 97 % of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

SCRIPTS = Path(__file__).parent / "scripts"
GOALS = {0.005: 0.01, 0.05: 0.002}
PAIRS = 9
STEPS = {0.005: 600, 0.05: 120}  # of each side of a pair
MILLION = 1_000_000
_LOOP = """
import sys, tensorflow as tf
total, square = tf.Variable(0.0), tf.random.normal([192, 192])
data = tf.data.Dataset.from_tensors(1.0).repeat(int(sys.argv[1]))
@tf.function
def step(batch):
    with tf.GradientTape() as tape:
        loss = batch * total
    total.assign_add(1e-9 * tape.gradient(loss, total))
    if sys.argv[2] == "graph":  # a loop in Python takes longer than a fast step by itself
        total.assign_add(1e-9 * tf.reduce_sum((total * square) @ square))
@tf.function
def train(data):
    for batch in data:
        step(batch)
if sys.argv[2] == "graph":
    train(data)
else:
    for batch in data:
        step(batch)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cost", "agreement", "memory"))
    parser.add_argument("names", nargs="*", help="scripts without .py, or milliseconds; all of them by default")
    parser.add_argument("--budget", default="25", help="seconds of a diagnosis")
    parser.add_argument("--steps", type=int, default=MILLION, help="of the loop for memory")
    parser.add_argument("--loop", choices=("graph", "python"), help="only one kind of loop")
    parser.add_argument("--seconds", type=float, default=3600.0, help="after which the loop for memory is ended")
    given = parser.parse_args()
    if given.what == "cost":
        found = cost(given.names, given.loop)
    elif given.what == "memory":
        found = memory(given.steps, given.loop or "graph", given.seconds)
    else:
        names = given.names or sorted(path.stem for path in SCRIPTS.glob("*.py"))
        found = agreement(names, given.budget)
    print(json.dumps(found, indent=2))


def cost(names, loop):
    """Microseconds that a step takes longer: medians over pairs, their quartiles, and the share of the step."""
    found, met = {}, []
    for sleep_s, goal in GOALS.items():
        for in_graph in (False, True):
            if (names and f"{sleep_s * 1e3:g}" not in names) or loop == ("python" if in_graph else "graph"):
                continue
            added = _cost(sleep_s, in_graph=in_graph)
            us = statistics.median(added["all"])
            met.append(us / 1e6 / sleep_s <= goal)
            name = f"{sleep_s * 1e3:g} ms, {'request in a graph' if in_graph else 'request from Python'}"
            found[name] = {
                "us_per_step": round(us, 1),
                "quartiles": [round(value, 1) for value in statistics.quantiles(added["all"], n=4)[::2]],
                "share": round(us / 1e6 / sleep_s, 5),
                "own_threads_us_per_step": round(statistics.median(added["own"]), 1),
                "cpu_us_per_step": round(statistics.median(added["cpu"]), 1),
            }
    return {"goal": {f"{s * 1e3:g} ms": g for s, g in GOALS.items()}, "value": found, "met": all(met)}


def _cost(sleep_s, *, in_graph):
    import mmap

    import tensorflow as tf

    from xttsbench.records.rows import RowMemory
    from xttsbench.records.trial import TrialSpec
    from xttsbench.worker.channel import DirectChannel, ScriptReport
    from xttsbench.worker.script.patches import Patches, patch_tensorflow
    from xttsbench.worker.script.to_the_end import RareSamples
    from xttsbench.worker.script.watched import Watched
    from xttsbench.worker.script.whole_run import WholeRunRecorder

    spec = TrialSpec(trial_id="cost", kind="script", target="none.py")
    rows = RowMemory(mmap.mmap(-1, RowMemory.size_bytes(8193)))
    channel = DirectChannel(lambda message: None, rows)
    report = ScriptReport(spec, channel)
    watched = Watched(report, lambda _: None, WholeRunRecorder(report))
    iterator = iter(tf.data.Dataset.from_tensors(tf.zeros([32, 32])).repeat())
    weights = tf.Variable(tf.zeros([32, 32]))

    def trains(batch):
        with tf.GradientTape():  # by which a loop is known as one that trains
            weights.assign_add(batch)

    def functions():
        if in_graph:
            return tf.function(lambda: trains(next(iterator)))
        step = tf.function(trains)
        return lambda: step(next(iterator))

    def run(step, count):
        spent = []
        for _ in range(count):
            began = time.perf_counter()
            step()
            spent.append(time.perf_counter() - began)
            time.sleep(sleep_s)
        return statistics.median(spent)

    bare, measured = functions(), functions()
    patches = Patches()

    def poll():  # on one thread all along, as in a run
        while polls.wait():
            time.sleep(watched.recorder.next_poll_s())
            if polls.is_set():
                watched.poll()

    polls = threading.Event()
    polling = threading.Thread(target=poll, daemon=True)
    polling.start()

    @contextlib.contextmanager
    def watching():
        watched.eager.open = None
        patch_tensorflow(watched, patches)
        watched.recorder.watch.__enter__()
        watched.active = True
        samples = RareSamples(lambda held: channel.send({"samples": held}), lambda: watched.requesting, early=0)
        samples.start()
        polls.set()
        yield polling, next(thread for thread in threading.enumerate() if thread.name == "xttsbench-samples")
        polls.clear()
        samples.end()
        watched.active = False
        watched.recorder.watch.__exit__()
        patches.undo()

    with watching():
        run(measured, 30)
    run(bare, 30)
    count = STEPS[sleep_s]
    added = {"all": [], "own": [], "cpu": []}
    for pair in range(PAIRS):
        times = {}
        for kind in ("on", "off") if pair % 2 else ("off", "on"):
            step = measured if kind == "on" else bare
            with watching() if kind == "on" else contextlib.nullcontext(()) as threads:
                run(step, 8)
                own, clock = sum(map(_cpu_s, threads)), time.process_time()
                waited = run(step, count)
                times[kind] = waited, (sum(map(_cpu_s, threads)) - own) / count, (time.process_time() - clock) / count
        (waited, own, cpu), (waited_bare, _, cpu_bare) = times["on"], times["off"]
        added["all"].append((waited - waited_bare + own) * 1e6)
        added["own"].append(own * 1e6)
        added["cpu"].append((cpu - cpu_bare) * 1e6)
    return added


def _cpu_s(thread):
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def agreement(names, budget):
    """Script -> what both say, and the losses."""
    found, agree, equal = {}, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            script = str(SCRIPTS / f"{name}.py")
            plain = _run([sys.executable, script])
            watched = _run([sys.executable, "-m", "xttsbench", "watch", script, "--out", f"{folder}/w-{name}"])
            likely = json.loads(Path(folder, f"w-{name}", "summary.json").read_text())
            command = [sys.executable, "-m", "xttsbench", "diagnose", script, "--no-verify", "--budget", budget]
            _run([*command, "--out", f"{folder}/d-{name}"])
            proved = json.loads(Path(folder, f"d-{name}", "report.json").read_text())["verdict"]
            same = likely["bottleneck"] == proved["bottleneck"]
            losses = [[line for line in text.splitlines() if line.startswith("loss ")] for text in (plain, watched)]
            agree, equal = agree + same, equal + (losses[0] == losses[1] and len(losses[0]) == 1)
            found[name] = {
                "watch": likely["bottleneck"],
                "probability": round(likely["probability"] or 0.0, 3),
                "diagnose": proved["bottleneck"],
                "confidence": round(proved["confidence"], 3),
                "agree": same,
                "loss": losses[0][0][5:] if losses[0] else None,
                "loss_watched": losses[1][0][5:] if losses[1] else None,
                "steps": likely["steps"],
                "step_ms": round(likely["step_time_s"]["estimate"] * 1e3, 2) if likely["step_time_s"] else None,
            }
            print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
            shutil.rmtree(folder + f"/d-{name}", ignore_errors=True)
    return {"value": found, "agree": f"{agree} of {len(names)}", "losses_equal": f"{equal} of {len(names)}"}


def _run(command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def memory(steps, loop, seconds):
    """Resident megabytes of the loop and of who watches it, at a tenth, half and the end of a million steps."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "loop.py")
        script.write_text(_LOOP)
        out = Path(folder, "run")
        command = [sys.executable, "-m", "xttsbench", "watch", str(script), "--out", str(out), "--", str(steps), loop]
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found, marks = [], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97]
        while process.poll() is None:
            time.sleep(0.2)
            if time.monotonic() - began > seconds:
                process.terminate()
                seconds = float("inf")
            try:
                live = json.loads((out / "live.json").read_text())
                if marks and live["steps"] / steps >= marks[0]:
                    marks.pop(0)
                    sizes = {"loop_mb": _rss(live["pid"]), "watch_mb": _rss(process.pid)}
                    found.append({"steps": live["steps"], **sizes})
            except (OSError, ValueError, IndexError):
                continue
        summary = json.loads((out / "summary.json").read_text())
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        return {
            "loop": loop,
            "value": found,
            "steps": summary["steps"] + summary["warm_up_steps"],
            "lost_steps": summary["lost_steps"],
            "seconds": round(time.monotonic() - began, 1),
            "run_directory_mb": round(size / 1e6, 2),
            "growth_mb": round(found[-1]["loop_mb"] - found[0]["loop_mb"], 1) if found else None,
        }


def _rss(pid):
    return round(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


if __name__ == "__main__":
    main()
