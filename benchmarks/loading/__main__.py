"""The project's loaders beside plain ``readinto``, the torch DataLoader and grain, in one run; prints JSON.

``python benchmarks/loading [--quick] [--rounds N] [--utterances N] [--index] [--out FILE]``: 512 utterances of about
5 s, batches of 16 by the project's own plan, which every contestant follows: the same clips in the same order, padded
to the same sizes, with references and texts. Each contestant is a process of its own, each peer has an environment of
its own (made on first use). First the peers are tuned: every variant of each number of workers is screened, and the
best one goes on. Then the batches of all are compared with the truth: no figure comes out where they differ. Then
rounds, all contestants in each, in random order; a process warms up and goes over the batches again and again. The
files are in the page cache for all: this compares programs, not disks. Medians of samples per second, and ratios with
a paired interval over the rounds. Of the peers there is also one that reads by hand, with ``readinto`` where its users
would write ``np.load``: it tells what the framework costs from what the reading costs, and is no part of the goal.

Then the training step of the smallest recipe, eager and compiled, and with ``--index`` what an index of a million
clips holds in memory. A table goes to standard error. It needs a quiet machine: what other programs used of the cores
just before each process is in the output, and where that is more than a tenth the figures are called provisional.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import environments
import index
import step
from arena import WARM_UP_S, Arena, FailedError, played, tuned, warm
from contestants import Contestant, ours, plain
from manifest import Manifest
from results import best, judged, ratio
from workload import MAX_S, MIN_S, features, prepare

from xttsbench.probes.environment import environment

ROUNDS, STEP_ROUNDS, UTTERANCES, SECONDS = 7, 5, 512, 2.0
SCREENS, SCREEN_S = 2, 1.0
QUICK = {"rounds": 1, "utterances": 64, "seconds": 0.3}
BUSY_LIMIT = 0.1  # share of the cores in use by others above which figures are provisional


def figures(rates: dict[str, list[float]], contestants: Sequence[Contestant], missing: str) -> dict[str, Any]:
    """Return the ratios beside their goals; ``missing`` says why a peer was not measured."""
    peers = [entry for entry in contestants if entry.environment != "xttsbench"]
    usual, hand_made = ([entry.name for entry in peers if entry.hand_made == made] for made in (False, True))
    result = {
        "packed / numpy_cache": judged(ratio(rates, "packed", "numpy_cache"), 10),
        "packed / readinto": judged(ratio(rates, "packed", "readinto"), 0.5),
        "packed / best peer": judged(ratio(rates, "packed", best(rates, usual)) if usual else None, 4, reason=missing),
        "tf_cache / numpy_cache": judged(ratio(rates, "tf_cache", "numpy_cache"), 3),
        "tf_wav / numpy_wav": {"goal": None, "value": ratio(rates, "tf_wav", "numpy_wav")},
        "packed / readinto (files)": {"goal": None, "value": ratio(rates, "packed", "readinto (files)")},
        "packed / readinto (one buffer)": {"goal": None, "value": ratio(rates, "packed", "readinto (one buffer)")},
    }
    if usual:
        result["packed / best peer"]["peer"] = best(rates, usual)
    if hand_made:
        name = best(rates, hand_made)
        result["packed / best peer reading by hand"] = {"goal": None, "value": ratio(rates, "packed", name)}
        result["packed / best peer reading by hand"]["peer"] = name
    return result


def table(result: dict[str, Any]) -> str:
    """Return the output as two tables for people."""
    lines = [f"{'contestant':58} {'samples/s':>10} {'least':>9} {'most':>9} {'apart':>8}"]
    for row in sorted(result["contestants"], key=lambda row: -row["samples_per_s_median"]):
        rates, apart = row["samples_per_s"], row["largest_difference"]
        lines.append(
            f"{row['name']:58} {row['samples_per_s_median']:10.0f} {min(rates):9.0f} {max(rates):9.0f} "
            f"{f'{apart:.1e}' if apart else '0':>8}"
        )
    lines += ["", f"{'figure':40} {'value':>8} {'interval':>18} {'goal':>6} {'met':>4}"]
    for name, score in result["figures"].items():
        value = score["value"]
        shown = f"{value['estimate']:.2f}" if value else "none"
        interval = f"{value['low']:.2f} .. {value['high']:.2f}" if value and "low" in value else ""
        met = {True: "yes", False: "NO", None: ""}[score.get("met")]
        lines.append(f"{name:40} {shown:>8} {interval:>18} {score['goal'] or '':>6} {met:>4}")
    if "index" in result:
        memory = result["index"]
        name, met = f"index of {memory['clips']:,} clips, peak in MB", "yes" if memory["met"] else "NO"
        lines.append(f"{name:40} {memory['peak_mb']:8.0f} {'':18} {f'<{index.GOAL_MB:.0f}':>6} {met:>4}")
    if result["provisional"]:
        busy = result["others_used_of_the_cores"]["median"]
        lines += ["", f"provisional: other programs used {busy:.0%} of the cores (median)"]
    return "\n".join(lines)


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="loading", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds ({ROUNDS})")
    parser.add_argument("--utterances", type=int, default=UTTERANCES, help=f"utterances ({UTTERANCES})")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"measured seconds of a process ({SECONDS:g})")
    parser.add_argument("--cores", type=int, default=2, help="cores that all processes are held to (2)")
    parser.add_argument("--seed", type=int, default=0, help="of the order within a round (0)")
    parser.add_argument("--no-peers", action="store_true", help="leave torch and grain out")
    parser.add_argument("--no-step", action="store_true", help="leave the training step out")
    parser.add_argument("--index", action="store_true", help="also the index of a million clips (a minute or two)")
    parser.add_argument("--index-clips", type=int, default=index.CLIPS, help="clips of that index (1000000)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: 64 utterances, no tuning, one short round")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    options = parser.parse_args()
    options.screens, options.screen_s = SCREENS, SCREEN_S
    if options.quick:
        vars(options).update(QUICK, screens=0)
    if options.rounds < 1 or options.seconds <= 0 or options.cores < 1:
        parser.error("--rounds and --cores are 1 at least, --seconds above 0")
    if options.utterances < 64:
        parser.error(f"--utterances is 64 at least (four batches), got {options.utterances}")
    return options


def interpreters(options: argparse.Namespace) -> tuple[dict[str, Path | str], dict[str, str]]:
    """Return the interpreter of each environment that there is, and why the others are left out."""
    pythons: dict[str, Path | str] = {"xttsbench": sys.executable}
    left_out: dict[str, str] = {}
    for peer in environments.NAMES:
        try:
            if options.no_peers:
                left_out[peer] = "left out by --no-peers"
            else:
                pythons[peer] = environments.interpreter(peer)
        except environments.EnvironmentFailedError as error:
            left_out[peer] = str(error)
    return pythons, left_out


def compared(arena: Arena, data: Path, options: argparse.Namespace, left_out: dict[str, str]) -> dict[str, Any]:
    """Tune the peers, check every contestant and run the rounds; return what the output says of them.

    A peer that cannot be tuned is added to those left out.

    Raises:
        FailedError: a contestant ends with an error, or its batches differ.
    """
    contestants, screened = [*ours(data), *plain()], {}
    for peer in environments.NAMES:
        if peer in left_out:
            continue
        print(f"tuning {peer}", file=sys.stderr, flush=True)
        try:
            chosen, rates = tuned(arena, peer, options.screens, options.screen_s)
        except FailedError as error:
            left_out[peer] = str(error)
        else:
            contestants += chosen
            screened |= rates
    print("comparing the batches with the truth", file=sys.stderr, flush=True)
    differences = {contestant.name: arena.check(contestant) for contestant in contestants}
    found = played(arena, contestants, options.rounds, options.seconds, options.seed)
    by_name = {name: [row["samples_per_s"] for row in rows] for name, rows in found.items()}
    return {
        "figures": figures(by_name, contestants, "; ".join(left_out.values())),
        "contestants": [
            {
                "name": entry.name,
                "variant": {key: value for key, value in entry.variant.items() if key != "data"},
                "samples_per_s_median": round(statistics.median(by_name[entry.name]), 1),
                "samples_per_s": [round(rate, 1) for rate in by_name[entry.name]],
                "peak_rss_mb": round(statistics.median(row["peak_rss_mb"] for row in found[entry.name]), 1),
                "largest_difference": differences[entry.name],
            }
            for entry in contestants
        ],
        "screened_samples_per_s": screened,
    }


def circumstances(arena: Arena, options: argparse.Namespace, cores: int, left_out: dict[str, str]) -> dict[str, Any]:
    """Return the machine, the versions and the settings; no name of a directory or a host."""
    machine, busy, manifest = environment(), statistics.median(arena.busy), arena.manifest
    pins = {
        peer: next(line for line in environments.requirements(peer) if line.startswith(f"{peer}=="))
        for peer in environments.NAMES
    }
    return {
        "provisional": busy > BUSY_LIMIT,
        "others_used_of_the_cores": {"median": round(busy, 3), "most": round(max(arena.busy), 3)},
        "machine": {"cpu": machine["cpu"]["model"], "cores": cores, "page_cache": "warm for all"},
        "versions": {
            "python": machine["python"]["version"],
            "tensorflow": machine["packages"]["tensorflow"],
            **{peer: left_out.get(peer, pin.partition("==")[2]) for peer, pin in pins.items()},
        },
        "settings": {
            "rounds": options.rounds,
            "utterances": options.utterances,
            "seconds_of_a_clip": [MIN_S, MAX_S],
            "mel_kb_mean": round(float(manifest.mel_lengths.mean()) * manifest.n_mels * 4 / 1000, 1),
            "batches": len(manifest),
            "batch_size": int(manifest.batch_starts[1]),
            "reference_frames": manifest.reference_frames,
            "padding_efficiency": round(padding_efficiency(manifest), 3),
            "warm_up_s": WARM_UP_S,
            "seconds": options.seconds,
            "order": f"random in each round, seed {options.seed}",
        },
    }


def main() -> None:
    """Measure and print."""
    options = parsed()
    cores = sorted(os.sched_getaffinity(0))[: options.cores]
    os.sched_setaffinity(0, cores)
    data, manifest = prepare(options.utterances)
    warm(manifest, data)
    pythons, left_out = interpreters(options)
    with tempfile.TemporaryDirectory(prefix="loading-") as folder:
        arena = Arena(manifest, Path(folder), pythons, cores)
        try:
            result = compared(arena, data, options, left_out)
            if not options.no_step:
                result["step"] = step.measure(min(options.rounds, STEP_ROUNDS), options.seconds, options.seed)
                result["figures"] |= result["step"].pop("figures")
        except FailedError as error:
            sys.exit(f"nothing was compared: {error}")
    if options.index:
        result["index"] = index.measure(options.index_clips, features().sample_rate_hz)
    figured = result.pop("figures")
    result = {"figures": figured, **circumstances(arena, options, len(cores), left_out), **result}
    print(table(result), file=sys.stderr)
    text = json.dumps(result, indent=2)
    print(text)
    if options.out:
        options.out.write_text(f"{text}\n", encoding="utf-8")


def padding_efficiency(manifest: Manifest) -> float:
    """Return the share of the batches' mel frames that is not padding."""
    rows = manifest.batch_starts[1:] - manifest.batch_starts[:-1]
    return float(manifest.mel_lengths[manifest.clips].sum() / (rows * manifest.frames).sum())


if __name__ == "__main__":
    main()
