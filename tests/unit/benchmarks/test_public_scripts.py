"""Scripts of others: left out with a sentence where their code is not at hand, and taken as they stand where it is."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace

import public_scripts
import pytest

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git, by which the code of others is taken")


@pytest.mark.parametrize("one", public_scripts.PUBLIC, ids=lambda one: one.name)
def test_without_a_clone_it_is_left_out_with_where_it_lies(one, tmp_path):
    with pytest.raises(public_scripts.MissingError, match=f"{one.name} is left out.*{one.commit}"):
        one.case(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_notebook_becomes_a_script_without_lines_for_a_shell(tmp_path):
    clone = tmp_path / "docs"
    cells = [("markdown", "# Data"), ("code", "!pip install x\nfirst = 1"), ("code", "%matplotlib inline\nepochs = 10")]
    notebook = {"cells": [{"cell_type": kind, "source": [text]} for kind, text in cells]}
    (clone / "site").mkdir(parents=True)
    (clone / "site" / "page.ipynb").write_text(json.dumps(notebook))
    git = ["git", "-C", str(clone), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "page"]):
        subprocess.run([*git, *words], check=True)
    one = replace(
        public_scripts.PUBLIC[2],
        repository="some/docs",
        commit="HEAD",
        path="site/page.ipynb",
        data=lambda folder: None,
    )
    case = one.case(tmp_path, tmp_path / "out")
    assert (case.name, case.file.name) == ("sentiment", "page.py")
    assert case.version({}) == "first = 1\n\nepochs = 10\n"
    assert case.version(case.tuned) == "first = 1\n\nmodel.jit_compile = True\nepochs = 10\n"
