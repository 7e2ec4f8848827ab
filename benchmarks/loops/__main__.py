"""What xttsbench says of training loops without a Dataset: four planted, four published.

``python benchmarks/loops [--code CLONES] [--only 3,7] [--out DIR] [--work DIR]``: the command of each case of
:mod:`cases` runs once, in a fresh folder. ``CLONES`` has the repositories that :mod:`cases` lists; without it the
published loops are left out. Judged as ``benchmarks/threads`` does, the rows are in DIR/loops.json with a page beside
it. Goals: verdict and line right in all eight, cured or a remedy written out as code in six, none wrong. The code of
others stays outside of this repository. Nothing else should run on the machine; the exit code is 1 where an answer is
wrong.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "threads"))
sys.path.append(str(HERE.parent / "others"))
from cases import CASES  # noqa: E402 - the paths come first
from judging import Case, page  # noqa: E402
from published import target  # noqa: E402
from running import main, options_of  # noqa: E402


def markdown(result: dict[str, Any]) -> str:
    """The page of the stored results."""
    found = result["goals"]
    return page(
        "Training loops without a Dataset",
        f"{found['cases']} loops, four of them planted (`benchmarks/loops/targets`), the others published scripts, on "
        f"{result['machine']}: verdict and line right in {found['named']}, cured or a remedy written out as code in "
        f"{found['cured']}, wrong in {found['wrong']}. `python benchmarks/loops --code DIR` writes this page.",
        result,
    )


def made(case: Case, folder: Path) -> None:
    """Write a case's target to a folder: our own file, or the published text by its template."""
    own = HERE / "targets" / case.file
    text = own.read_text(encoding="utf-8") if own.exists() else _published(own.with_suffix(".txt"), folder)
    (folder / case.file).write_text(text, encoding="utf-8")


def _published(template: Path, folder: Path) -> str:
    return target(template.read_text(encoding="utf-8"), options.code, folder)


if __name__ == "__main__":
    parser = options_of(__doc__)
    parser.add_argument("--code", type=Path, help="folder with clones of what was published")
    options = parser.parse_args()
    cases = [case for case in CASES if options.code or case.reference == "planted"]
    sys.exit(main(options, cases, made, "loops", markdown))
