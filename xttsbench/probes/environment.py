"""The machine and the software that a run was measured on, and the fingerprint that tells comparable runs from others.

Versions come from the packages' metadata, so TensorFlow is never imported here.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata, util
from pathlib import Path
from typing import Any, Final

import psutil

from xttsbench.errors import HelperError
from xttsbench.files import mount_of
from xttsbench.probes.nvml import look_at_gpus
from xttsbench.probes.procfs import cpu_allowance, memory_limit_bytes
from xttsbench.records.machine import TENSORFLOW
from xttsbench.records.plan import RunPlan
from xttsbench.records.redaction import Redaction, harmless, secret_name
from xttsbench.records.variables import KNOWN

PACKAGES: Final = (
    "xttsbench",
    "tensorflow",
    "keras",
    "numpy",
    "scipy",
    "protobuf",
    "tensorboard",
    "tensorboard-plugin-profile",
    "ml-dtypes",
    "nvidia-ml-py",
    "nvidia-cuda-runtime-cu12",
    "nvidia-cudnn-cu12",
    "nvidia-nccl-cu12",
    "psutil",
)
_OTHER_NAMES: Final = {"tensorflow": ("tensorflow-cpu", "tf-nightly", "intel-tensorflow")}
_PREFIXES: Final = ("TF_", "XLA_")
_ANYBODYS: Final = ("admin", "docker", "jovyan", "localhost", "root", "runner", "ubuntu", "user")
"""Names of accounts and machines that tell nothing."""


def environment(directory: str | Path = ".") -> dict[str, Any]:
    """Content of ``environment.json``: plain JSON values; ``unmeasured`` has the reason for each ``None`` or empty one.

    ``directory`` is where the storage is looked at, by default the working directory. ``quota_cpus`` and
    ``limit_bytes`` are ``None`` where no limit is set.
    """
    unmeasured: dict[str, str] = {}
    distribution = None
    with contextlib.suppress(OSError):
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME")
    found: dict[str, Any] = {
        "os": {
            "system": platform.system(),
            "distribution": distribution,
            "kernel": platform.release(),
            "architecture": platform.machine(),
        },
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
        "packages": package_versions(),
        "cpu": {
            "model": _cpu_model(unmeasured),
            "physical_cores": psutil.cpu_count(logical=False),
            **asdict(cpu_allowance()),
        },
        "memory": {"total_bytes": psutil.virtual_memory().total, "limit_bytes": memory_limit_bytes()},
        **_gpus(unmeasured),
        "storage": storage_under(Path(directory), unmeasured),
        "variables": variables(os.environ),
    }
    if others := sum(name.startswith(_PREFIXES) and name not in KNOWN for name in os.environ):
        unmeasured["variables.others"] = f"{others} more begin with {' or '.join(_PREFIXES)}; none is known"
    unmeasured |= {f"packages.{name}": "not installed" for name, has in found["packages"].items() if has is None}
    if found["cpu"]["physical_cores"] is None:
        unmeasured["cpu.physical_cores"] = "the operating system does not tell"
    found["unmeasured"] = unmeasured
    found["fingerprint"] = fingerprint(found)
    return found


def require_tensorflow() -> None:
    """Refuse a TensorFlow that this code was not made for, before anything is measured; it is not imported.

    One that was built under a name of its own tells no version, and is taken as it is.

    Raises:
        HelperError: it is missing, or of a version that is not in :data:`TENSORFLOW`.
    """
    version = package_versions()["tensorflow"]
    if version is None and util.find_spec("tensorflow") is not None:
        return
    if version is None or ".".join(version.split(".")[:2]) not in TENSORFLOW:
        raise HelperError(
            f"xttsbench works with TensorFlow {', '.join(TENSORFLOW[:-1])} and {TENSORFLOW[-1]}, and this environment "
            f"has {version or 'none'}; install one of these: pip install 'tensorflow=={TENSORFLOW[-1]}.*'."
        )


def fingerprint(environment: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits (SHA-256) over what makes the times of two runs comparable.

    That is: the processor's model, the processors of the machine, of the affinity mask and of the quota; the GPUs'
    names, the driver, and where there is a GPU also which of them are visible (``CUDA_VISIBLE_DEVICES``); and the
    version of TensorFlow. Left out on purpose is what varies without changing times much (kernel, memory, storage, the
    GPU's serial number), so that equal machines of a cluster agree. Data set and code are not part of it: a
    comparison adds its own.

    Takes what :func:`environment` returned, also when it comes back from ``environment.json``; a missing part counts
    as unknown.
    """
    cpu = environment.get("cpu", {})
    gpus = [gpu.get("name") for gpu in environment.get("gpus", ())]
    comparable = {
        "cpu": [cpu.get(key) for key in ("model", "machine_cpus", "affinity_cpus", "quota_cpus")],
        "gpus": gpus,
        "gpu_driver": environment.get("gpu_driver"),
        "visible_gpus": environment.get("variables", {}).get("CUDA_VISIBLE_DEVICES") if gpus else None,
        "tensorflow": environment.get("packages", {}).get("tensorflow"),
    }
    return hashlib.sha256(json.dumps(comparable, sort_keys=True).encode()).hexdigest()[:16]


def package_versions() -> dict[str, str | None]:
    """Installed versions of the packages that times depend on; ``None`` for absent ones."""
    return {name: installed_version(name, *_OTHER_NAMES.get(name, ())) for name in PACKAGES}


def installed_version(*names: str) -> str | None:
    """The version of the first of these packages that is installed; ``None`` where none is."""
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def _cpu_model(unmeasured: dict[str, str], cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        unmeasured["cpu.model"] = f"/proc/cpuinfo cannot be read: {error.strerror}"
        return None
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    # 64-bit ARM has no model name, but numbers for the designer and the design.
    arm = [fields[key] for key in ("CPU implementer", "CPU part") if key in fields]
    model = fields.get("model name") or " ".join(arm) or None
    if model is None:
        unmeasured["cpu.model"] = "/proc/cpuinfo names no model"
    return model


def _gpus(unmeasured: dict[str, str]) -> dict[str, Any]:
    # Nothing of ours runs on a GPU yet, so what holds it now is others'.
    readings, probe, reason = look_at_gpus()
    if probe is None:
        unmeasured["gpus"] = unmeasured["gpu_driver"] = reason or "unknown"
        return {"gpus": [], "gpu_driver": None}
    if probe.driver_version is None:
        unmeasured["gpu_driver"] = "NVML does not tell the driver's version"
    gpus = []
    for gpu in readings:
        holds = {
            "memory_total_bytes": gpu.memory_total_bytes,
            "memory_used_before_bytes": next(iter(gpu.memory_used_bytes), None),
            "processes_before": None if "processes" in gpu.unmeasured else len(gpu.processes),
        }
        for name, value in holds.items():
            if value is None:
                unmeasured[f"gpus.{gpu.index}.{name}"] = gpu.unmeasured.get(name.replace("_before", ""), "unknown")
        gpus.append({"index": gpu.index, "name": gpu.name, "uuid": gpu.uuid, **holds})
    return {"gpus": gpus, "gpu_driver": probe.driver_version}


def storage_under(directory: Path, unmeasured: dict[str, str]) -> dict[str, Any]:
    """File system and device of the directory; ``rotational`` is true for a spinning disk."""
    resolved = directory.resolve()
    mount = mount_of(resolved)
    if mount is None:
        unmeasured["storage"] = "the directory's mount is not in the list of mounts"
    device = resolved.stat().st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    # A partition has no queue of its own; its disk is the directory above.
    queues = (block / "queue/rotational", block.resolve().parent / "queue/rotational")
    rotational = next((flag.read_text(encoding="utf-8").strip() == "1" for flag in queues if flag.exists()), None)
    if rotational is None:
        unmeasured["storage.rotational"] = "the file system is on no block device that the kernel describes"
    return {
        "filesystem": mount.fstype if mount else None,
        "device": mount.device if mount else None,
        "mount": mount.mountpoint if mount else None,
        "rotational": rotational,
        "free_bytes": shutil.disk_usage(resolved).free,
    }


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that TensorFlow, CUDA and NumPy read, without secrets and folders in their flags."""
    guard = Redaction(redact=True)
    return {name: " ".join(guard.words(environ[name].split())) for name in sorted(environ) if name in KNOWN}


def guard(directory: Path, plan: RunPlan, environ: Mapping[str, str] = os.environ) -> Redaction:
    """Return what keeps the secrets of a run out of its files, and with ``redact`` who measured where.

    Secrets are those among the plan's arguments, and what variables of such a name hold.
    """
    found = plan.redaction()
    found.kept(plan)
    return plan.redaction([*found.secrets(), *secrets_of(environ)], **where(directory))


def where(directory: Path) -> dict[str, Any]:
    """Return the folders of a run and the names of user and machine, as :class:`Redaction` takes them."""
    names = {platform.node(), platform.node().partition(".")[0]}
    with contextlib.suppress(KeyError, OSError):
        names.add(getpass.getuser())
    return {
        "places": [(str(directory.absolute()), ""), (str(Path.cwd()), ""), (os.path.expanduser("~"), "…/")],
        "names": {name for name in names if len(name) > 2 and name not in _ANYBODYS},
    }


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """Values of variables whose names mark them as secret, except paths."""
    return [
        value
        for name, value in environ.items()
        if secret_name(name) and "SESSION" not in name and len(value) >= 8 and not value.startswith("/")
        if not harmless(value)
    ]
