"""What ``--profile`` keeps, opened in TensorBoard as the screen says: XProf's pages are there at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
TARGET = """
import tensorflow as tf

def make():
    dataset = tf.data.Dataset.range(1_000_000).map(lambda i: tf.random.normal([64, 64])).batch(4)
    return dataset, tf.function(lambda batch: tf.reduce_sum(tf.matmul(batch, batch)))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a profile of its steps."""
    folder = tmp_path_factory.mktemp("profiled")
    (folder / "data.py").write_text(TARGET)
    command = [sys.executable, str(ROOT / "cli.py"), "diagnose", "data.py:make", "--profile", "--no-verify"]
    done = subprocess.run(
        [*command, "--budget", "20", "--out", "run"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture
def tensorboard(run: Path) -> Iterator[str]:
    """The address of a TensorBoard on the kept profile."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(run / "profile"), "--port", "0"]
    served = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert served.stderr is not None
    said = ""
    for line in served.stderr:
        said += line
        if found := re.search(r"at (http://[\w.:]+/)", line):
            yield found[1]
            break
    else:
        pytest.fail(said)
    served.terminate()
    served.communicate(timeout=20)


def test_tensorboard_opens_the_kept_profile_and_xprof_has_its_own_verdict(
    browser: Browser, run: Path, tensorboard: str
) -> None:
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert report["profile"]["xprof"]["says"] in ("input", "perhaps input", "not input")
    page = browser.new_page()
    page.goto(f"{tensorboard}#profile")
    opened = page.frame_locator("iframe").first
    opened.get_by_text("Performance Summary").first.wait_for(timeout=60_000)
    said = opened.locator("body").inner_text()
    assert f"v{report['profile']['xprof']['version']}" in said
    assert "Input Time" in said
    page.close()
