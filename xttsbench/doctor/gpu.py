"""Checks of the GPU: whether there is one, and why TensorFlow does not see it."""

from __future__ import annotations

import re
from typing import Final

from xttsbench.records.machine import Figure, Machine, Said
from xttsbench.records.pipeline import size

LEAST_DRIVER: Final = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
"""Major version of CUDA -> oldest driver that runs all of its minor versions (NVIDIA, CUDA Toolkit Release Notes,
table of minor version compatibility)."""
_HELD_SHARE, _HELD_BYTES, _FULL_SHARE = 0.05, 2 << 30, 0.9
"""Drivers keep some hundred megabytes for themselves, so less than that names nobody."""
_MASK: Final = "CUDA_VISIBLE_DEVICES"


def gpu_driver(machine: Machine) -> Said:
    """No driver, one that does not answer, or one that is too old; no GPU at all is for information."""
    found = machine.driver
    figures: dict[str, Figure] = {
        "gpus": len(found.gpus),
        "driver": found.version,
        "driver_cuda": found.cuda,
        "on_the_bus": len(found.pci),
    }
    if found.ill:
        remedy = "dmesg | grep -i -e nvrm -e xid says what the driver met; restart the machine."
        return Said("broken", found.reason or "the driver does not answer", figures, remedy)
    if not found.gpus and found.refused:
        return Said("unknown", f"{found.reason or 'no GPU is listed'}: its device files cannot be opened", figures)
    if not found.gpus:
        return _no_gpus(machine, figures)
    if lost := [gpu for gpu in found.gpus if gpu.lost is not None]:
        remedy = "dmesg | grep -i xid says why; nvidia-smi --gpu-reset or a restart brings it back, else it is damaged."
        return Said("broken", f"GPU {lost[0].index} does not answer ({lost[0].lost})", figures, remedy)
    least = LEAST_DRIVER.get(int(machine.sight.cuda.split(".")[0])) if machine.sight.cuda else None
    version = tuple(map(int, re.findall(r"\d+", found.version or "")))
    if least and version and version < least and not machine.sight.gpus:
        oldest = ".".join(f"{part:02d}" if index else str(part) for index, part in enumerate(least))
        return Said(
            "broken",
            f"driver {found.version} is older than {oldest}, the least for the CUDA {machine.sight.cuda} that this "
            "TensorFlow was built for",
            figures | {"cuda": machine.sight.cuda},
            f"Update the NVIDIA driver to {oldest} or newer; a container uses that of its machine.",
        )
    names = ", ".join(gpu.name for gpu in found.gpus)
    cuda = f", for CUDA up to {found.cuda}" if found.cuda else ""
    version_words = found.version or "of unknown version"
    return Said("ok", f"{len(found.gpus)} GPU(s): {names}; driver {version_words}{cuda}", figures)


def _no_gpus(machine: Machine, figures: dict[str, Figure]) -> Said:
    found, reason = machine.driver, machine.driver.reason or "the driver's library lists no GPU"
    if not found.pci:
        remedy = "Where the machine has one: docker run --gpus all." if found.container else ""
        return Said("note", f"no GPU on this machine ({reason}): the processor is the device", figures, remedy)
    bound = {driver for driver in found.pci.values() if driver}
    where = f"an NVIDIA GPU sits at {', '.join(found.pci)}, and "
    if found.container:
        remedy = "Start the container with --gpus all; its machine needs the NVIDIA Container Toolkit."
    elif "mismatch" in reason.lower():
        remedy = "The driver was updated and the old one still runs: restart the machine, or load the module anew."
    elif "nouveau" in bound:
        remedy = "Install NVIDIA's driver (ubuntu-drivers install), which replaces nouveau, and restart."
    elif "not loaded" in reason:
        remedy = "modprobe nvidia; where that fails, dmesg says why (Secure Boot, a new kernel without the module)."
    else:
        remedy = "Install NVIDIA's driver (ubuntu-drivers install, or nvidia.com/drivers) and restart."
    drivers = f" (the kernel's driver of it is {', '.join(sorted(bound))})" if bound else ""
    return Said("broken", f"{where}{reason}{drivers}", figures, remedy)


def gpu_permission(machine: Machine) -> Said | None:
    """Device files that this user may not open."""
    refused = machine.driver.refused
    if not refused:
        return Said("ok", "all can be opened", {}) if machine.driver.gpus else None
    which = ", ".join(f"{file} ({why})" for file, why in refused.items())
    return Said(
        "broken",
        f"cannot be opened: {which}",
        {"refused": len(refused)},
        "Add the user to the group that owns them (ls -l /dev/nvidia*; often video: usermod -aG video $USER) and log "
        "in again; in a container, pass all of them on (--gpus all).",
    )


def gpu_mask(machine: Machine) -> Said | None:
    """A mask that hides all GPUs."""
    mask = machine.software.variables.get(_MASK)
    if mask is None or not machine.driver.gpus:
        return None
    visible = _visible(mask, len(machine.driver.gpus))
    figures: dict[str, Figure] = {"mask": mask, "visible": visible, "gpus": len(machine.driver.gpus)}
    seen = f"{_MASK}={mask!r} shows {visible} of {len(machine.driver.gpus)} GPU(s)"
    if visible:
        return Said("ok", seen, figures)
    return Said("broken", seen, figures, f"unset {_MASK}, or name GPUs that there are: {_MASK}=0.")


def _visible(mask: str, gpus: int) -> int:
    """GPUs that a mask shows: CUDA reads it up to the first entry that is none."""
    shown = set()
    for entry in mask.split(","):
        name = entry.strip()
        known = name.isdigit() and int(name) < gpus
        if not (known or name.startswith(("GPU-", "MIG-"))):
            break
        shown.add(name)
    return len(shown)


def gpu_build(machine: Machine) -> Said | None:
    """A build without CUDA beside a GPU."""
    sight = machine.sight
    if not machine.driver.gpus or sight.built_with_cuda is None:
        return None
    figures: dict[str, Figure] = {"built_with_cuda": sight.built_with_cuda, "cuda": sight.cuda, "cudnn": sight.cudnn}
    if sight.built_with_cuda:
        return Said("ok", f"built for CUDA {sight.cuda} and cuDNN {sight.cudnn}", figures)
    version = sight.versions.get("tensorflow", "")
    others = " ".join(machine.software.builds) or "tensorflow-cpu"
    remedy = f"pip uninstall -y {others} && pip install 'tensorflow[and-cuda]=={version}'"
    if machine.software.architecture != "x86_64":
        remedy = f"The wheels for {machine.software.architecture} have no CUDA: use NVIDIA's container of TensorFlow"
    gpus = len(machine.driver.gpus)
    return Said("broken", f"TensorFlow {version} is a CPU build beside {gpus} GPU(s)", figures, f"{remedy}.")


def gpu_libraries(machine: Machine) -> Said | None:
    """A library that is missing, by name."""
    sight = machine.sight
    if not machine.driver.gpus or not sight.built_with_cuda:
        return None
    mask = machine.software.variables.get(_MASK)
    if mask is not None and not _visible(mask, len(machine.driver.gpus)):
        return Said("unknown", f"not tried: {_MASK} hides all GPUs", {})
    if sight.gpus or not sight.missing:
        return Said("ok", "all that a GPU needs were found", {}) if sight.gpus else None
    reasons: dict[str, list[str]] = {}
    for name, why in sight.missing.items():
        reasons.setdefault(why.removeprefix(f"{name}: "), []).append(name)
    named = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
    version = sight.versions.get("tensorflow", "")
    return Said(
        "broken",
        f"cannot be loaded: {named}",
        {"missing": len(sight.missing)},
        f"pip install 'tensorflow[and-cuda]=={version}'; libraries of the system's are found through LD_LIBRARY_PATH.",
    )


def gpu_visible(machine: Machine) -> Said | None:
    """Fewer than there are, where no other check says why."""
    gpus, sight = machine.driver.gpus, machine.sight
    if not gpus or sight.stage in ("start", "import", "devices"):
        return None
    mask = machine.software.variables.get(_MASK)
    expected = len(gpus) if mask is None else _visible(mask, len(gpus))
    figures: dict[str, Figure] = {"gpus": len(sight.gpus), "expected": expected, "complaint": sight.complaint}
    seen = f"TensorFlow sees {len(sight.gpus)} of {expected} GPU(s)"
    if len(sight.gpus) >= expected:
        return Said("ok", seen, figures) if expected else None
    explained = (gpu_driver, gpu_permission, gpu_build, gpu_libraries)
    if any(said is not None and said.status == "broken" for said in (one(machine) for one in explained)):
        return None
    why = f": CUDA says {sight.complaint}" if sight.complaint else ""
    return Said(
        "broken",
        f"{seen}{why}",
        figures,
        "dmesg | grep -i -e nvrm -e xid says what the driver met; nvidia-modprobe -u -c=0 makes /dev/nvidia-uvm where "
        "it is missing; after an update of the driver, restart.",
    )


def gpu_memory(machine: Machine) -> Said | None:
    """A GPU that is shared, or full before anything of ours began."""
    figures: dict[str, Figure] = {}
    held = []
    for gpu in machine.driver.gpus:
        used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        figures |= {f"gpu{gpu.index}.used_bytes": used, f"gpu{gpu.index}.processes": gpu.processes}
        if used and total and used > max(_HELD_SHARE * total, _HELD_BYTES):
            held.append((used / total, f"GPU {gpu.index}: {size(used)} of {size(total)} are held by others"))
    if not machine.driver.gpus:
        return None
    if not held:
        return Said("ok", "free", figures)
    share, seen = max(held)
    remedy = f"nvidia-smi names who holds it; end them, or choose another GPU with {_MASK}."
    return Said("broken" if share > _FULL_SHARE else "note", seen, figures, remedy)
