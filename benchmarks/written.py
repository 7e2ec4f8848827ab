"""The end of a benchmark: its result as JSON on standard output, and in a file where one was named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def finish(result: dict[str, Any], file: Path | None) -> None:
    """Print a result; with ``file`` it is stored there first, in a directory that is made if missing."""
    text = json.dumps(result, indent=1)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    print(text)
