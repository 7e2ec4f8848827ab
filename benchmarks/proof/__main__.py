"""Whether the bundled trainer learns to speak what is written: trained, heard, and beside a control; prints JSON.

``python benchmarks/proof [--quick] [--steps N] [--seed N] [--set KEY=VALUE] [--out FILE]``: the command ``xttsbench
train tiny`` in a process of its own, on 128 clips of two speakers that are made for it in a temporary directory, and 32
more that it never sees. Gates:

- *the loss falls*: that of the first step over the mean of the steps 181-200 is 3.5 at least, and over that of the last
  20 steps 10. It is told for each step (``training.log_every=1``), so that it is the first step's own, before any
  update.
- *it reads*: what the model speaks from text alone is recognised letter by letter, by the nearest spectra of the
  recorded clips, with at most 15 % of errors, and likewise after Griffin-Lim has made sound of it, on clips that it was
  taught and on those held out. On clips that it was taught, its loss with the text of another clip is 4 times that with
  the right one; on the others, that figure is reported beside the same goal, and no gate.
- *it ends*: its speech is 0.9-1.1 times as long as the recorded clip, in the mean.
- *it listens to the reference*: with that of the other speaker, it is recognised as the other one, in 90 % of clips.
- *the control fails*: the same run on the same clips with their texts permuted, so that none keeps its own. It can
  learn to continue sound, and its loss falls and its attention is a diagonal all the same; but heard with the true
  texts it must miss the goals for reading, or those would show nothing.

Exit code 0 where all gates are met, 1 where one is not or a run failed. A table goes to standard error. Nothing is
timed, so that it takes no quiet machine; some minutes on two cores. ``--quick`` trains 200 steps on fewer, shorter
clips and looks at the loss alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gates import EARLY_STEP, Gate, all_met, control_gates, early_gate, fall, heard_gates, late_gate, table
from runs import RECIPE, FailedError, Run, train
from speech import SEED, Work, made, with_other_texts

from xttsbench.errors import XttsbenchError
from xttsbench.probes.environment import environment
from xttsbench.worker.channel import quiet_unless_it_fails

STEPS = 1200
WORK = Work(clips=160, held_out=32, min_s=1.0, max_s=3.0)
QUICK = Work(clips=72, held_out=8, min_s=1.0, max_s=2.0)

Heard = dict[str, dict[str, Any]]


def say(sentence: str) -> None:
    """Tell what goes on."""
    print(sentence, file=sys.stderr, flush=True)


def judged(folder: Path, options: argparse.Namespace) -> tuple[list[Gate], dict[str, Run], dict[str, Heard]]:
    """Make the data, train, and hear: the gates, and what they rest on, by the name of the run."""
    work = QUICK if options.quick else WORK
    datasets = {"trained": folder / "data"}
    say(f"making {work.clips} clips")
    made(folder / "data", work)
    if not options.quick:
        datasets["control"] = folder / "other-texts"
        with_other_texts(folder / "data", folder / "other-texts")
    runs = {}
    for name, data in datasets.items():
        say(f"{name}: {options.steps} steps")
        runs[name] = train(data, folder / name, steps=options.steps, seed=options.seed, settings=options.settings)
    losses = runs["trained"].losses
    gates = [early_gate(losses)]
    if options.quick:
        return gates, runs, {}
    say("hearing both")
    heard = listened(folder / "data", runs)
    gates += [late_gate(losses, options.steps), *heard_gates(heard["trained"]), *control_gates(heard["control"])]
    return gates, runs, heard


def listened(data: Path, runs: Mapping[str, Run]) -> dict[str, Heard]:
    """Hear the models, all with the true texts."""
    with quiet_unless_it_fails():  # not at the top: it imports TensorFlow, which a look at the loss does without
        from hearing import Hearing

    hearing = Hearing(data, runs["trained"].recipe())
    return {name: hearing(run.directory) for name, run in runs.items()}


def shown(run: Run, steps: int) -> dict[str, Any]:
    """Return what a run's losses did: the control's, too, which fall and are no gates."""
    falls = {str(step): fall(run.losses, step) for step in sorted({EARLY_STEP, steps})}
    return {
        "first_loss": run.losses.get(1),
        "last_loss": run.losses.get(steps),
        "first_loss_over_mean_loss_up_to_step": falls,
        "warned": run.warned,
        "took_s": round(run.took_s, 1),
    }


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="proof", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, help=f"of each run ({STEPS}; with --quick {EARLY_STEP})")
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and dropout (0)")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="of the recipe; repeatable"
    )
    parser.add_argument("--quick", action="store_true", help="200 steps, the loss alone, no control")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    options = parser.parse_args()
    if options.steps is None:
        options.steps = EARLY_STEP if options.quick else STEPS
    if options.steps < EARLY_STEP or options.seed < 0:
        parser.error(f"--steps is {EARLY_STEP} at least, where the loss is judged first, and --seed 0")
    return options


def main() -> None:
    """Train, hear and print."""
    options = parsed()
    # TensorFlow's notices would bury the table; whoever wants them sets the variable.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory(prefix="proof-") as name:
        os.environ["XTTSBENCH_CACHE"] = str(Path(name) / "cache")  # where the features go, in all processes
        try:
            gates, runs, heard = judged(Path(name), options)
        except (FailedError, XttsbenchError) as error:
            sys.exit(f"nothing was proved: {error}")
        recipe = runs["trained"].recipe().model_dump(mode="json")
        told = {run: shown(own, options.steps) for run, own in runs.items()}
    machine = environment()
    result = {
        "met": all_met(gates),
        "provisional": options.quick or options.steps < STEPS,
        "gates": [gate.shown() for gate in gates],
        "runs": told,
        "heard": heard,
        "machine": {"cpu": machine["cpu"]["model"], "cores": len(os.sched_getaffinity(0))},
        "versions": {"python": machine["python"]["version"], "tensorflow": machine["packages"]["tensorflow"]},
        "settings": {
            "recipe": RECIPE,
            "steps": options.steps,
            "seed": options.seed,
            "set": options.settings,
            "clips": asdict(QUICK if options.quick else WORK) | {"seed": SEED},
            "trained_with": recipe,
        },
    }
    say(table(gates))
    text = json.dumps(result, indent=2)
    print(text)
    if options.out:
        options.out.write_text(f"{text}\n", encoding="utf-8")
    if not result["met"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
