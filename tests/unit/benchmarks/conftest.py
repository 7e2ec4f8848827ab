"""``python benchmarks/loading`` has its directory on the import path; so have its tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks" / "loading"))
