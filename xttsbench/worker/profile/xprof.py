"""XProf's own verdict on a profile, from the installed package, in a process of its own: its native code may fail."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from xttsbench.analysis.gpu import TOOLS, read
from xttsbench.records.gpu_activity import XProfVerdict

_SECONDS: Final = 30.0
_PACKAGES: Final = ("xprof", "tensorboard_plugin_profile")
"""Where the converter is: today, and before 2.20."""
_ABSENT: Final = "XProf is not installed: pip install 'xttsbench[profile]'"


def ask(path: Path) -> XProfVerdict | str:
    """What XProf says of an XPlane, or why it says nothing."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__, str(path)],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"XProf took more than {_SECONDS:.0f} s"
    except OSError as error:
        return f"XProf could not be started: {error.strerror}"
    lines = done.stdout.splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else {"error": f"XProf ended with {done.returncode} and said nothing"}
        return answer["error"] if "error" in answer else XProfVerdict(**answer)
    except (json.JSONDecodeError, ValidationError, TypeError):
        return "XProf's answer cannot be read"


def _converter() -> tuple[Any, str] | None:
    """Its converter and the package's version."""
    for package in _PACKAGES:
        try:
            found = importlib.import_module(f"{package}.convert.raw_to_tool_data")
            return found, version(package.replace("_", "-"))
        except (ImportError, PackageNotFoundError):
            continue
    return None


def main(path: str) -> dict[str, Any]:
    """The verdict as a dictionary, or its ``error``."""
    if (found := _converter()) is None:
        return {"error": _ABSENT}
    convert, of = found
    texts = {}
    for tool in TOOLS:
        try:
            data, _ = convert.xspace_to_tool_data([path], tool, {})
        except Exception as error:  # whatever it raises, our own figures stand
            return {"error": f"XProf could not read the profile: {type(error).__name__}"}
        if data is None:
            return {"error": f"XProf could not make its {tool.replace('_', ' ')} of the profile"}
        texts[tool] = data.decode() if isinstance(data, bytes) else str(data)
    try:
        return read(texts).model_copy(update={"version": of}).model_dump(mode="json")
    except (ValueError, KeyError, TypeError) as error:
        return {"error": f"XProf's tables cannot be read: {type(error).__name__}"}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
