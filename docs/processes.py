"""The picture of ARCHITECTURE.md, as SVG: which processes there are, and what they say to one another.

``make docs`` draws it and a test fails where the stored one is old::

    python docs/processes.py docs/images/processes.svg
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import Final

BOXES: Final = {  # name -> left, top, width, height, lines
    "parent": (20, 20, 300, 92, ("parent: xttsbench", "plans, listens, samples, writes", "never imports TensorFlow")),
    "files": (420, 20, 300, 92, ("the run's directory", "plan.json, environment.json,", "trials.jsonl, report.json")),
    "helper": (20, 190, 220, 92, ("helper: worker.helper", "TensorFlow imported, idle", "a session of its own")),
    "rows": (420, 190, 300, 92, ("rows of steps", "memory that the parent made (memfd)", "outlives the trial")),
    "trial": (
        20,
        360,
        300,
        92,
        ("trial: worker.trial", "runs the target, one kind of trial", "a process group of its own"),
    ),
    "trainer": (
        420,
        360,
        300,
        92,
        ("xttsbench train: worker.training", "no helper, no time limit", "SIGTERM ends it at a step"),
    ),
    "started": (20, 530, 300, 64, ("what the target started", "killed with the trial, orphans too")),
    "inputs": (420, 530, 300, 64, ("input processes, --input-workers", "no TensorFlow, clips by shared memory")),
}
ARROWS: Final = (  # from, to (x1, y1, x2, y2), what passes
    ((320, 66, 420, 66), "writes"),
    ((110, 112, 110, 190), "control socket"),
    ((420, 236, 320, 112), "reads"),
    ((110, 282, 110, 360), "fork"),
    ((296, 360, 296, 112), "JSON lines"),
    ((320, 390, 420, 282), "a row a step"),
    ((570, 360, 570, 282), "the same rows"),
    ((110, 452, 110, 530), "starts"),
    ((570, 452, 570, 530), "starts"),
)


def picture() -> str:
    """Boxes and arrows in colours that stand on light and dark pages."""
    drawn = [f"<title>Processes of xttsbench</title>{_MARKER}"]
    for left, top, width, height, (head, *lines) in BOXES.values():
        drawn.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8"/>')
        said = [f'<tspan x="{left + width // 2}" class="head">{escape(head)}</tspan>']
        said += [f'<tspan x="{left + width // 2}" dy="24">{escape(line)}</tspan>' for line in lines]
        drawn.append(f'<text x="{left + width // 2}" y="{top + 28}">{"".join(said)}</text>')
    for (x1, y1, x2, y2), said in ARROWS:
        drawn.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')
        drawn.append(f'<text x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 - 6}" class="said">{escape(said)}</text>')
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 614">{_STYLE}{"".join(drawn)}</svg>\n'


_STYLE: Final = (
    "<style>rect{fill:#eef2ff;stroke:#4f5bd5;stroke-width:1.5}line{stroke:#64748b;stroke-width:1.5;"
    "marker-end:url(#tip)}text{font:14px DejaVu Sans,sans-serif;fill:#1e293b;text-anchor:middle}.head{font-weight:bold}"
    ".said{font-size:13px;paint-order:stroke;stroke:#fff;stroke-width:5px}svg{background:#fff}</style>"
)
_MARKER: Final = (
    '<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">'
    '<path d="M0,0 L9,4 L0,8 z" fill="#64748b"/></marker></defs>'
)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
