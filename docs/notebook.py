"""Notebooks of docs/, run in IPython's own shell, with their outputs written anew.

``make docs`` writes them, and a test fails where a cell raises or a stored output is another one::

    python docs/notebook.py [NOTEBOOK] [COPY]
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

NOTEBOOK = Path(__file__).with_name("runs-as-frames.ipynb")


class Shell(InteractiveShell):
    """A shell without windows."""

    def enable_gui(self, gui: Any = None) -> None:
        """Open none."""


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with what its cells give now, run one after another in the working directory.

    Raises:
        Exception: that of a cell.
    """
    shell = Shell.instance(colors="nocolor")
    shell.enable_matplotlib("inline")  # as Jupyter does by itself
    cells = []
    for number, cell in enumerate(notebook["cells"]):
        outputs = {}
        if cell["cell_type"] == "code":
            with capture_output() as captured:
                result = shell.run_cell("".join(cell["source"]))
            result.raise_error()
            outputs = {"execution_count": number, "outputs": [*_outputs(captured)]}
        cells.append(cell | outputs)
    return notebook | {"cells": cells}


def _outputs(captured: Any) -> Iterator[dict[str, Any]]:
    """What a cell printed and drew, as a notebook keeps it."""
    if captured.stdout:
        yield {"output_type": "stream", "name": "stdout", "text": captured.stdout.splitlines(keepends=True)}
    for one in captured.outputs:
        yield {"output_type": "display_data", "data": {"image/png": one.data["image/png"]}, "metadata": {}}


def main() -> None:
    """Run a notebook in its own folder, and write it, or a copy of it."""
    source = Path(sys.argv[1] if len(sys.argv) > 1 else NOTEBOOK).absolute()
    copy = Path(sys.argv[2] if len(sys.argv) > 2 else source).absolute()
    os.chdir(source.parent)
    made = executed(json.loads(source.read_text(encoding="utf-8")))
    copy.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
