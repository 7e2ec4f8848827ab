"""The owner of a file is told from its path, and nothing is imported for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig

import numpy
import pytest

import xttsbench
from xttsbench.owners import owner

OURS = os.path.dirname(xttsbench.__file__)
STDLIB, PACKAGES = sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"]


@pytest.mark.parametrize(
    ("file", "whose"),
    [
        (__file__, "user"),
        ("/home/me/project/train.py", "user"),
        ("/home/me/tensorflow/train.py", "user"),  # a folder of that name is no framework
        ("<stdin>", "typed"),
        ("<ipython-input-3-abc>", "typed"),
        ("<frozen importlib._bootstrap>", "python"),
        ("/tmp/__autograph_generated_filexyz.py", "autograph"),
        (f"{OURS}/cli/app.py", "ours"),
        (f"{OURS}/training/loop.py", "workload"),
        (f"{OURS}/targets/bundled.py", "workload"),
        (f"{OURS}_of_mine/xtts/model.py", "user"),
        (json.__file__, "python"),
        (numpy.__file__, "library"),
        (pytest.__file__, "library"),
        ("/other/lib/python3.11/site-packages/librosa/core.py", "library"),
        ("/other/lib/python3.11/site-packages/tf_keras/src/losses.py", "framework"),
        ("/other/lib/python3.11/site-packages/tensorflow/python/eager/context.py", "framework"),
    ],
)
def test_the_owner_of_a_file(file, whose):
    assert owner(file) == whose


def test_nothing_is_imported_to_tell(tmp_path):
    told = "print({'tensorflow', 'keras', 'numpy'} & {*sys.modules})"
    code = f"import sys; from xttsbench.owners import owner; owner('x.py'); {told}"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert said.stdout == "set()\n"


REFUSES = """
import sys

class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name in ("tensorflow", "keras"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuses())
from xttsbench.owners import owner
print(owner("x.py"))
"""


def test_an_importer_that_refuses_a_framework_is_no_error(tmp_path):
    said = subprocess.run([sys.executable, "-c", REFUSES], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert said.stdout == "user\n"
