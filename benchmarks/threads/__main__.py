"""What xttsbench says of other people's trouble: twenty public reports, made anew in our own code.

``python benchmarks/threads [--only 3,7] [--out DIR] [--work DIR]``: the command of each case of :mod:`cases` runs once,
in a fresh folder that holds its target. Judged are the report and the screen: whether the cause is named, whether it is
cured, or said that it is not ours. Rows are kept by number in DIR/threads.json, with a page beside it. Goals: named in
16 of 20, cured in 10, none wrong. Nothing else should run on the machine; the exit code is 1 where an answer is wrong.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from cases import CASES, TARGETS
from judging import Case, markdown
from running import main, options_of


def made(case: Case, folder: Path) -> None:
    """Copy a case's target to a folder."""
    stem = case.file.removesuffix(".py")
    for file in TARGETS.glob(f"{stem}*"):  # a case of two versions has both
        shutil.copy(file, folder)


if __name__ == "__main__":
    sys.exit(main(options_of(__doc__).parse_args(), CASES, made, "threads", markdown))
