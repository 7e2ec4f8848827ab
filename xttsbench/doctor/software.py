"""Checks of the software: versions, whether TensorFlow starts, and whether XLA compiles."""

from __future__ import annotations

from typing import Final

from xttsbench.doctor.check import Said, check
from xttsbench.records.machine import TENSORFLOW, Figure, Machine, Sight

_PYTHON: Final = (3, 11)
_SLOW_IMPORT_S: Final = 30.0
"""Four times what it took on two slow cores (4-7 s): a disk or a network that is slow to give the files."""
_TOLERANCE: Final = 1e-4
_ILLEGAL: Final = "SIGILL"


@check("versions", "Python, TensorFlow, Keras and NumPy")
def versions(machine: Machine) -> Said:
    """Whether what is installed is what this package was tried with, once and not twice."""
    packages = machine.software.packages
    installed = packages.get("tensorflow")
    figures = {"python": machine.software.python} | {
        name: packages.get(name) for name in ("tensorflow", "keras", "numpy")
    }
    seen = ", ".join(f"{name} {version}" for name, version in figures.items() if version)
    if tuple(map(int, machine.software.python.split(".")[:2])) < _PYTHON:
        wanted = ".".join(map(str, _PYTHON))
        return Said("broken", f"{seen}: Python before {wanted}", figures, f"Make an environment with Python {wanted}.")
    newest = f"pip install 'tensorflow=={TENSORFLOW[-1]}.*'"
    if installed is None and "tensorflow" not in machine.sight.versions:
        return Said("broken", f"{seen}: TensorFlow is not installed", figures, f"Install it: {newest}.")
    if installed is not None and ".".join(installed.split(".")[:2]) not in TENSORFLOW:
        tried = ", ".join(TENSORFLOW)
        return Said("broken", f"{seen}: xttsbench was made for TensorFlow {tried}", figures, f"Install one: {newest}.")
    if len(machine.software.builds) > 1:
        builds = " and ".join(machine.software.builds)
        return Said(
            "broken",
            f"{builds} are both installed, and each overwrites the other's files",
            figures,
            f"pip uninstall -y {' '.join(machine.software.builds)}, then install one: {newest}.",
        )
    backend = machine.software.variables.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        return Said(
            "note",
            f"{seen}; KERAS_BACKEND={backend!r}: Keras does not compute with TensorFlow",
            figures | {"keras_backend": backend},
            "Unset KERAS_BACKEND where Keras is to train with TensorFlow.",
        )
    return Said("ok", seen, figures)


@check("tensorflow-starts", "TensorFlow is imported and computes, in a process of its own")
def tensorflow_starts(machine: Machine) -> Said | None:
    """A crash, an error or a hang of the import or of the first operation, with the last words."""
    sight = machine.sight
    if sight.stage == "start" and sight.ended is None:
        return None
    figures: dict[str, Figure] = {"import_s": sight.import_s, "stage": sight.stage, "ended": sight.ended}
    if sight.ended is not None and sight.stage in ("start", "import", "devices"):
        doing = "its first operation" if sight.stage == "devices" else "'import tensorflow'"
        return Said("broken", f"{doing}: {sight.ended}{_words(sight)}", figures, _start_remedy(machine))
    took = "" if sight.import_s is None else f"imported in {sight.import_s:.1f} s"
    if sight.import_s is not None and sight.import_s > _SLOW_IMPORT_S:
        return Said(
            "note",
            f"{took}, which takes 4-7 s from a local disk",
            figures,
            "Put the environment on a local disk; a second import is quick where the first was cold.",
        )
    return Said("ok", took or "started", figures)


def _start_remedy(machine: Machine) -> str:
    sight = machine.sight
    if sight.ended and _ILLEGAL in sight.ended:
        return "This processor lacks instructions (AVX) that the wheel was built with: use another machine or build."
    if sight.ended and "SIGKILL" in sight.ended:
        return f"The kernel ends what takes too much memory ({machine.memory.left / 1e9:.2g} GB were left): make room."
    if "ModuleNotFoundError" in sight.last_words or "ImportError" in sight.last_words:
        return "Install what is missing, or TensorFlow anew: pip install --force-reinstall tensorflow."
    if sight.ended and "busy" in sight.ended:
        return "Run 'python -X faulthandler -c \"import tensorflow\"' and press Ctrl-C: it shows where it hangs."
    return "Run 'python -X faulthandler -c \"import tensorflow\"' for the whole story; then install TensorFlow anew."


@check("xla", "a small function, compiled by XLA, gives the right number on each device")
def xla(machine: Machine) -> Said | None:
    """Whether XLA compiles and computes."""
    sight = machine.sight
    if sight.stage == "xla" and sight.ended is not None:
        return Said(
            "broken",
            f"while XLA compiled a small function: {sight.ended}{_words(sight)}",
            {"ended": sight.ended},
            "Train without jit_compile=True until this works; the last words say what failed.",
        )
    if not sight.computed:
        return Said("unknown", "not tried: TensorFlow did not come so far", {})
    figures = {f"first_s.{one.device}": one.first_s for one in sight.computed}
    for one in sight.computed:
        if one.error is not None:
            return Said("broken", f"on {one.device}: {one.error}", figures, _xla_remedy(one.error))
        if one.value is None or abs(one.value - one.expected) > _TOLERANCE * one.expected:
            return Said(
                "broken",
                f"on {one.device} a compiled function gave {one.value} where {one.expected:g} is right",
                figures | {"value": one.value, "expected": one.expected},
                "Trust no number of this device: test its memory (nvidia-smi -q -d ECC), and update the driver.",
            )
    took = ", ".join(f"{one.device} in {one.first_s:.2g} s" for one in sight.computed if one.first_s is not None)
    return Said("ok", f"compiled, and right: {took}", figures)


def _xla_remedy(error: str) -> str:
    if "libdevice" in error or "ptxas" in error:
        return (
            "pip install nvidia-cuda-nvcc-cu12 brings ptxas and libdevice; or name CUDA's folder: "
            "XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda."
        )
    return "Train without jit_compile=True until this works."


def _words(sight: Sight) -> str:
    words = " / ".join(sight.last_words.splitlines())
    return f"; its last words: {words}" if words else ""
