"""What is said of the machine, and what the fingerprint does and does not depend on."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.errors import HelperError
from xttsbench.probes.environment import _cpu_model, environment, fingerprint, require_tensorflow, variables
from xttsbench.records.variables import KNOWN

MACHINE: dict[str, Any] = {
    "os": {"kernel": "6.1"},
    "packages": {"tensorflow": "2.21.0", "numpy": "2.0"},
    "cpu": {"model": "X", "machine_cpus": 8, "affinity_cpus": 8, "quota_cpus": 2.0, "allowed_cpus": 2.0},
    "memory": {"total_bytes": 1},
    "gpus": [{"index": 0, "name": "G", "uuid": "u"}],
    "gpu_driver": "550",
    "variables": {"CUDA_VISIBLE_DEVICES": "0"},
}


def changed(change: Callable[[dict[str, Any]], Any]) -> str:
    machine = copy.deepcopy(MACHINE)
    change(machine)
    return fingerprint(machine)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["cpu"].update(model="Y"),
        lambda m: m["cpu"].update(machine_cpus=16),
        lambda m: m["cpu"].update(affinity_cpus=4),
        lambda m: m["cpu"].update(quota_cpus=None),
        lambda m: m["gpus"][0].update(name="H"),
        lambda m: m["gpus"].clear(),
        lambda m: m.update(gpu_driver="560"),
        lambda m: m["variables"].update(CUDA_VISIBLE_DEVICES="1"),
        lambda m: m["packages"].update(tensorflow="2.20.0"),
    ],
)
def test_what_changes_times_changes_the_fingerprint(change: Callable[[dict[str, Any]], Any]) -> None:
    assert changed(change) != fingerprint(MACHINE)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["os"].update(kernel="6.2"),
        lambda m: m["packages"].update(numpy="2.1"),
        lambda m: m["gpus"][0].update(uuid="v"),
        lambda m: m["memory"].update(total_bytes=2),
        lambda m: m.update(fingerprint="before"),
    ],
)
def test_what_does_not_leaves_it(change: Callable[[dict[str, Any]], Any]) -> None:
    assert changed(change) == fingerprint(MACHINE)


def test_without_a_gpu_the_visible_ones_do_not_matter() -> None:
    machine = {**MACHINE, "gpus": []}
    assert fingerprint({**machine, "variables": {}}) == fingerprint(machine)


def test_the_real_environment_survives_json_and_never_imports_tensorflow() -> None:
    code = (
        "import json, sys\n"
        "from xttsbench.probes.environment import environment\n"
        "found = environment()\n"
        "assert not {'tensorflow', 'keras', 'pandas', 'scipy'} & set(sys.modules), 'too much was imported'\n"
        "print(json.dumps(found))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["packages"]["numpy"] == metadata.version("numpy")
    assert found["fingerprint"] == fingerprint(found)
    assert found["cpu"]["machine_cpus"] >= found["cpu"]["affinity_cpus"] >= found["cpu"]["allowed_cpus"] > 0
    assert found["memory"]["total_bytes"] > 0
    if not found["gpus"]:
        assert found["unmeasured"]["gpus"]


def test_every_none_has_its_reason(tmp_path: Path) -> None:
    found = environment(tmp_path)
    missing = {f"packages.{name}" for name, version in found["packages"].items() if version is None}
    assert missing <= set(found["unmeasured"])
    assert found["storage"]["filesystem"]
    assert found["storage"]["free_bytes"] > 0
    assert (found["storage"]["rotational"] is None) == ("storage.rotational" in found["unmeasured"])


def test_only_the_variables_that_matter_are_kept_and_no_credentials() -> None:
    kept = variables(
        {
            "TF_XLA_FLAGS": "--tf_xla_auto_jit=2",
            "XLA_FLAGS": "--x",
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "4",
            "KERAS_BACKEND": "tensorflow",
            "TF_TOKEN_app_example_io": "secret",
            "TF_VAR_password": "secret",
            "TF_CLI_ARGS": "secret",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "HOME": "/home/someone",
        }
    )
    assert set(kept) == {"TF_XLA_FLAGS", "XLA_FLAGS", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "KERAS_BACKEND"}


@given(
    st.dictionaries(
        st.from_regex(
            r"(TF_|XLA_|CUDA_|NCCL_|OMP_|KERAS_|)[A-Z]{1,9}(_PASSWORD|_API_KEY|_TOKEN|_URL|)", fullmatch=True
        ),
        st.just("Mark3r-of-a-secret"),
        min_size=1,
    )
)
def test_a_variable_of_any_name_that_is_not_known_is_counted_at_most(tmp_path_factory, held: dict[str, str]) -> None:
    held = {name: value for name, value in held.items() if name not in KNOWN}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in held.items():
            patch.setenv(name, value)
        found = environment(tmp_path_factory.getbasetemp())
    assert "Mark3r" not in json.dumps(found)
    assert not [name for name in held if f'"{name}"' in json.dumps(found)]
    ours = sum(name.startswith(("TF_", "XLA_")) for name in held)
    assert ours <= int(found["unmeasured"].get("variables.others", "0 more").split()[0])


def test_flags_of_a_variable_are_without_folders_and_secrets() -> None:
    told = "--xla_dump_to=/home/ada/dump --xla_gpu_cuda_data_dir /opt/ada/cuda --some_token=Mark3r --xla_cpu_x=true"
    assert variables({"XLA_FLAGS": told}) == {
        "XLA_FLAGS": "--xla_dump_to=…/dump --xla_gpu_cuda_data_dir …/cuda --some_token=*** --xla_cpu_x=true"
    }


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor\t: 0\nmodel name\t: Fast CPU @ 3GHz\n", "Fast CPU @ 3GHz"),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "0x41 0xd0c"),
        ("processor\t: 0\n", None),
    ],
)
def test_the_processors_model(tmp_path: Path, text: str, model: str | None) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(text)
    unmeasured: dict[str, str] = {}
    assert _cpu_model(unmeasured, cpuinfo) == model
    assert ("cpu.model" in unmeasured) == (model is None)


@pytest.mark.parametrize("version", ["2.19.0", "2.20.1", "2.21.0-rc1"])
def test_a_supported_tensorflow_is_taken(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _name: version)
    require_tensorflow()


@pytest.mark.parametrize("version", ["2.18.1", "2.2.1", "2.22.0", "2.22.0.dev20260101", "3.0.0"])
def test_another_is_refused_in_one_sentence_with_those_that_work(version: str, monkeypatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _name: version)
    with pytest.raises(HelperError) as refused:
        require_tensorflow()
    assert f"TensorFlow 2.19, 2.20 and 2.21, and this environment has {version};" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_without_tensorflow_it_says_none_and_one_without_metadata_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", unknown)
    require_tensorflow()
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(HelperError, match="this environment has none"):
        require_tensorflow()
