"""What is wrong with a configuration of the bundled workload, said without TensorFlow and all at once."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import xttsbench
from xttsbench.targets.configuration import Configuration, configuration_problems

GOOD = [
    {},
    {"loader": "packed", "mode": "xla", "precision": "mixed_float16", "tokens_per_batch": 4096, "batch_size": None},
    {"cache": True, "device_prefetch": 2, "prefetch": 0, "workers": 0, "threads": 4, "deterministic": False},
    {"recipe": "tiny", "data": "/some/where", "features": None, "with_step": False, "seed": 7, "bucketing": False},
]
BAD = [
    ({"loder": "packed"}, "loder", "no such argument; did you mean 'loader'?"),
    ({"zzz": 1}, "zzz", "there are loader, mode, precision"),
    ({"loader": "pickled"}, "loader", "one of numpy_wav, .* is expected, got 'pickled'"),
    ({"mode": "jit"}, "mode", "one of graph, eager, xla is expected, got 'jit'"),
    ({"precision": "float16"}, "precision", "one of float32, .* is expected, got 'float16'"),
    ({"prefetch": -2}, "prefetch", "greater than or equal to -1, got -2"),
    ({"prefetch": "2"}, "prefetch", "integer, got '2'"),
    ({"prefetch": 2.0}, "prefetch", "integer, got 2.0"),
    ({"workers": True}, "workers", "integer, got True"),
    ({"device_prefetch": -1}, "device_prefetch", "got -1"),
    ({"cache": "yes"}, "cache", "boolean, got 'yes'"),
    ({"cache": 1}, "cache", "boolean, got 1"),
    ({"threads": 4096}, "threads", "got 4096"),
    ({"seed": 2**31}, "seed", "got 2147483648"),
    ({"recipe": "tinny"}, "recipe", "no training recipe is called 'tinny'; the nearest names: tiny"),
    ({"data": 3}, "data", "string, got 3"),
    ({"batch_size": 4, "tokens_per_batch": 9}, "tokens_per_batch", "9, and batch_size 4: .* give one"),
    ({"loader": "packed", "cache": True}, "cache", "the loader packed reads one file .* leave cache out"),
]


@pytest.mark.parametrize("config", GOOD)
def test_a_good_configuration_has_no_problem(config) -> None:
    assert configuration_problems(config) == []


@pytest.mark.parametrize(("config", "key", "sentence"), BAD)
def test_a_problem_names_the_key_the_value_and_what_is_expected(config, key, sentence) -> None:
    ((found, said),) = configuration_problems(config)
    assert found == key
    assert "Value error" not in said
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(said)


def test_all_problems_are_told_at_once() -> None:
    config = {"loader": "x", "batch_size": 0, "tokens_per_batch": "many", "cache": 0, "nonsense": None}
    assert {key for key, _ in configuration_problems(config)} == set(config)


def test_every_argument_of_the_workload_is_a_key_with_the_same_default() -> None:
    source = (Path(xttsbench.__file__).parent / "targets" / "bundled.py").read_text(encoding="utf-8")
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    arguments = functions["make_workload"].args
    defaults = [ast.literal_eval(node) for node in arguments.defaults]
    signature = dict(zip([argument.arg for argument in arguments.args], defaults, strict=True))
    assert signature == Configuration().model_dump()


def test_nothing_of_tensorflow_is_imported() -> None:
    code = (
        "import sys; from xttsbench.targets.configuration import configuration_problems; "
        "print(configuration_problems({}), sorted({'tensorflow', 'keras', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]"]
