"""``xttsbench optimize`` on generators: one is opened, with the same data and a patch that was run; one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_optimize import TARGETS, mended, run

pytestmark = [pytest.mark.measured, pytest.mark.slow]


def test_a_generator_that_waits_is_opened_proved_and_patched(tmp_path: Path) -> None:
    ran = run("generators.py:waits", tmp_path, "--accelerator", "emulated:5", budget_s=80)
    chosen = mended(ran, 1.3)  # 32 ms of waiting beside 5 ms of step
    assert any(part.startswith("open-generator") for part in chosen["fixes"])
    assert chosen["semantics"]["how"] == "identical"
    (text,) = chosen["patch"]["files"].values()
    assert "yield element, " in text
    assert "for index in rng.permutation(len(ITEMS)):" in text, "the order stays with the generator"


def test_a_generator_whose_elements_build_on_one_another_is_refused_with_the_line(tmp_path: Path) -> None:
    ran = run("generators.py:remembers", tmp_path, "--accelerator", "emulated:5", budget_s=60)
    assert "open-generator" not in " ".join(ran.accepted)
    refused = ran.fixes["open-generator"]
    assert refused["outcome"] == "not verified"
    line = 1 + (TARGETS / "generators.py").read_text(encoding="utf-8").splitlines().index(
        "            mean = 0.9 * mean + 0.1 * load(item)"
    )
    assert f"line {line}: 'mean' is carried from element to element" in refused["why"]
