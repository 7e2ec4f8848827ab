"""Whether the times of two runs may be compared at all, and in what they differ, field by field.

What changes times without anybody's doing (processor, quota, GPU, driver, TensorFlow, data, the accelerator, how much
was measured) makes them incomparable; what a user changes on purpose (code, configuration, versions of other packages)
is the very thing to compare, and is only named. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from xttsbench.records.comparison_result import Difference
from xttsbench.records.variables import KNOWN

_BATCH_KEYS: Final = ("batch_size", "batch", "tokens_per_batch")
_ALIKE: Final = 0.1  # Mean batches of a token budget vary by less than this from run to run


@dataclass(frozen=True, slots=True)
class Measured:
    """Conditions of one side's measurement; ``None`` where not recorded.

    Attributes:
        environment: of ``environment.json``.
        accelerator: label.
        steps: asked for in a trial.
        batch: mean samples of a batch.
        kwargs: of the target.
        data: hash of the data set.
        code: hash of the target's code.
        target: as named.
    """

    environment: Mapping[str, Any]
    accelerator: str | None = None
    steps: int | None = None
    batch: float | None = None
    kwargs: Mapping[str, Any] | None = None
    data: str | None = None
    code: str | None = None
    target: str | None = None


def differences(a: Measured, b: Measured, *, same_run: bool = False) -> tuple[Difference, ...]:
    """Lists differences, those that forbid a comparison first; within one run only the accelerator can forbid it."""
    found = [] if same_run else _forbidding(a, b)
    found = _differing([("accelerator", a.accelerator, b.accelerator)], comparable=False) + found
    named = [("target", a.target, b.target), ("code", a.code, b.code)]
    if not same_run:
        named += _paired(_named(a.environment), _named(b.environment))
    ignored = () if same_run else (*_BATCH_KEYS, "data")
    arguments = _paired(a.kwargs or {}, b.kwargs or {})
    named += [(f"argument {key}", ours, theirs) for key, ours, theirs in arguments if key not in ignored]
    return (*found, *_differing(named, comparable=True))


def _forbidding(a: Measured, b: Measured) -> list[Difference]:
    pairs = _paired(_machine(a.environment), _machine(b.environment))
    # A report alone has no plan, so what it does not tell cannot forbid anything.
    if a.steps is not None and b.steps is not None:
        pairs.append(("steps a trial", a.steps, b.steps))
    if a.kwargs is not None and b.kwargs is not None:
        pairs += [(f"argument {key}", a.kwargs.get(key), b.kwargs.get(key)) for key in _BATCH_KEYS]
    # The same data may lie in two places, so their hashes go before their directories.
    if a.data and b.data:
        pairs.append(("data set", a.data, b.data))
    elif a.kwargs is not None and b.kwargs is not None:
        pairs.append(("data set", a.kwargs.get("data", "the default"), b.kwargs.get("data", "the default")))
    if a.batch and b.batch and abs(a.batch / b.batch - 1) > _ALIKE:
        pairs.append(("samples in a batch", f"{a.batch:.4g}", f"{b.batch:.4g}"))
    return _differing(pairs, comparable=False)


def _paired(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(name, ours.get(name), theirs.get(name)) for name in dict.fromkeys([*ours, *theirs])]


def _machine(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Parts of the environment's fingerprint (:func:`xttsbench.probes.environment.fingerprint`)."""
    cpu = _part(environment, "cpu")
    gpus = [gpu.get("name") for gpu in environment.get("gpus") or () if isinstance(gpu, Mapping)]
    return {
        "processor": cpu.get("model"),
        "processors of the machine": cpu.get("machine_cpus"),
        "processors allowed (affinity)": cpu.get("affinity_cpus"),
        "processor quota": cpu.get("quota_cpus"),
        "GPU": ", ".join(map(str, gpus)) or "none",
        "GPU driver": environment.get("gpu_driver"),
        "CUDA_VISIBLE_DEVICES": _part(environment, "variables").get("CUDA_VISIBLE_DEVICES") if gpus else None,
        "TensorFlow": _part(environment, "packages").get("tensorflow"),
    }


def _named(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Software that may have been changed on purpose: Python, packages, variables."""
    packages = {name: value for name, value in _part(environment, "packages").items() if name != "tensorflow"}
    told = _part(environment, "variables").items()  # of earlier versions some that are nobody's to see
    variables = {name: value for name, value in told if name in KNOWN and name != "CUDA_VISIBLE_DEVICES"}
    return {"Python": _part(environment, "python").get("version")} | packages | variables


def _part(environment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = environment.get(name)
    return found if isinstance(found, Mapping) else {}


def _differing(pairs: list[tuple[str, Any, Any]], *, comparable: bool) -> list[Difference]:
    def text(value: Any) -> str:
        return "not recorded" if value is None else str(value)

    return [Difference(field=name, a=text(a), b=text(b), comparable=comparable) for name, a, b in pairs if a != b]
