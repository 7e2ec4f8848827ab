"""``python benchmarks/NAME`` has its directory on the import path; so have its tests."""

import sys
from pathlib import Path

for name in ("diagnosis", "fixes", "loading", "noise", "others", "proof", "soak", "sweeps", "trainer"):
    sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks" / name))
