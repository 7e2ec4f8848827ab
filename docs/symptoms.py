"""The page of symptoms, and their table on the first page, from the data that ``xttsbench explain`` reads.

``make docs`` writes them and a test fails where a stored one is old::

    python docs/symptoms.py
"""

from __future__ import annotations

import re
from pathlib import Path

from xttsbench.workflows.explain import Explanation, explain, explanations

HERE = Path(__file__).parent
_SYMPTOMS = """\
# From a symptom to a command

<!-- Written by `make docs` from xttsbench/workflows/symptoms.yaml: change that file, not this page. -->

Find what you see, and type what stands below it. `train.py` is your script with its own arguments behind `--`;
`diagnose` and `optimize` also take [a function](targets.md) that returns a dataset, with its step or model.
`xttsbench explain` takes the same words: `xttsbench explain "gpu at 20 %"`.
"""


def symptoms_page() -> str:
    """Each symptom with its answer, its commands, and links to what may be behind it."""
    found = [one for one in explanations() if one.kind == "symptom"]
    return "\n".join((_SYMPTOMS, *map(_symptom, found)))


def index_page() -> str:
    """docs/index.md with its table of symptoms written anew."""
    found = (one for one in explanations() if one.kind == "symptom")
    rows = (f"\n| [{one.about}](symptoms.md#{_anchor(one.about)}) | `{one.parts['Commands'][0]}` |" for one in found)
    table = f"| you see | you type |\n|---|---|{''.join(rows)}"
    text = (HERE / "index.md").read_text(encoding="utf-8")
    return re.sub(r"^\| you see \|.*?(?=\n\n)", lambda _: table, text, count=1, flags=re.MULTILINE | re.DOTALL)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _symptom(one: Explanation) -> str:
    links = ", ".join(
        f"[{name.replace('-', ' ') if kind == 'verdict' else name}]({_page(kind, name)})"
        for name, kind in ((name, explain(name).kind) for name in one.parts["What may be behind it"])
    )
    commands = "\n".join(one.parts["Commands"])
    return f"## {one.about}\n\n{one.summary}\n\n```\n{commands}\n```\n\nMay be behind it: {links}.\n"


def _page(kind: str, name: str) -> str:
    return {"rule": f"findings.md#{name}", "fix": "fixes.md#what-there-is"}.get(kind, "how-it-decides.md#the-verdict")


def written() -> dict[Path, str]:
    """Every file that is made here, and what is in it."""
    return {HERE / "symptoms.md": symptoms_page(), HERE / "index.md": index_page()}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
