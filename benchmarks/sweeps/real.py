"""Sweeps of arms that are truly equal, in real processes: each names a winner wrongly, or keeps the baseline.

The target makes small batches in TensorFlow's ops, and its arms differ in a number that nothing reads. Trials are
short, so that twenty sweeps take a quarter of an hour; it is a smoke test of the whole way from process to decision
beside the simulations, which have the numbers to say how often.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from xttsbench.workflows.scenario import Request, sweep

_SCENARIO = """name: equal
description: Four arms that are the same
target: {target}:make
grid: {{unread: [0, 1, 2, 3]}}
accelerator: "emulated:4"
steps: 40
window_s: 0.4
sweep: {{blocks: 8}}
budget_s: 600
seed: {seed}
"""
_TARGET = """import tensorflow as tf


def make(unread=0):
    return tf.data.Dataset.range(1_000_000).map(lambda i: tf.random.stateless_normal([64, 64], [i, 0])).batch(8)
"""


def sweeps(count: int, seed: int) -> list[dict[str, Any]]:
    """Run them; of each the choice in words."""
    found = []
    with tempfile.TemporaryDirectory(prefix="sweeps-") as folder:
        home = Path(folder)
        (home / "equal_arms.py").write_text(_TARGET, encoding="utf-8")
        for number in range(count):
            print(f"real sweep {number + 1} of {count}", file=sys.stderr, flush=True)
            scenario = home / f"equal-{number}.yaml"
            text = _SCENARIO.format(target=home / "equal_arms.py", seed=seed + number)
            scenario.write_text(text, encoding="utf-8")
            outcome = sweep(Request(scenario=str(scenario), out=home / f"run-{number}"))
            best = outcome.report.best
            found.append(
                {
                    "proven": best is not None and best.proven,
                    "decided": best is not None and best.decided,
                    "noisy": outcome.report.aa.noisy,
                    "why": best.why if best is not None else outcome.message,
                }
            )
    return found
