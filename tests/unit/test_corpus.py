"""What a fuzzer has found new ways with, read again: no exception but ours, and not for long (``benchmarks/fuzz``)."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "fuzz"))
import inputs  # type: ignore[import-not-found]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", inputs.KINDS)
def test_every_file_of_the_corpus_is_read_or_refused(kind: str, tmp_path: Path) -> None:
    files = sorted((inputs.CORPUS / kind).iterdir())
    assert len(files) >= 1
    for path in files:
        began = time.process_time()
        inputs.KINDS[kind](path.read_bytes(), tmp_path)
        assert time.process_time() - began < 5, path
