"""Checks of the processors: what may be used of them, the threads of TensorFlow and NumPy, and who else is there."""

from __future__ import annotations

from typing import Final

from xttsbench.doctor.check import Said, check
from xttsbench.records.machine import Figure, Machine, Status

_TWICE: Final = 2.0
_HALF: Final = 0.5
_SLACK: Final = 0.5
"""Of a processor: a quota of 7.5 takes 8 threads well."""
_WORTH_SAYING, _A_QUARTER = 0.10, 0.25
"""Of the processors' time. A tenth is what reports mention; with a quarter gone a step takes a third more."""
_VARIABLES: Final = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@check("cpu-quota", "processors that this process may use")
def cpu_quota(machine: Machine) -> Said:
    """A control group's quota below the processors that TensorFlow sizes its pools by."""
    found = machine.processors
    figures: dict[str, Figure] = {
        "machine_cpus": found.machine_cpus,
        "affinity_cpus": found.affinity_cpus,
        "quota_cpus": found.quota_cpus,
    }
    threads = max(machine.sight.threads.values(), default=0) or found.affinity_cpus
    if found.quota_cpus is not None and threads <= found.quota_cpus + _SLACK < found.affinity_cpus:
        return Said("ok", f"{threads} threads a pool on a quota of {found.quota_cpus:g} processors", figures)
    if found.quota_cpus is None or found.quota_cpus + _SLACK > found.affinity_cpus:
        part = f" of {found.machine_cpus}" if found.machine_cpus != found.affinity_cpus else ""
        return Said("ok", f"{found.affinity_cpus}{part} processors, no quota below them", figures)
    right = max(int(found.quota_cpus), 1)
    return Said(
        "broken" if threads >= _TWICE * found.quota_cpus else "note",
        f"the control group allows {found.quota_cpus:g} of {found.affinity_cpus} visible processors; TensorFlow's "
        f"pools have {threads} threads, and the kernel stops them all once a period's quota is used up",
        figures,
        f"Set TF_NUM_INTRAOP_THREADS={right} and TF_NUM_INTEROP_THREADS={right} before Python starts, or raise the "
        "quota (cpus of the container, cpu.max of the group).",
    )


@check("threads", "thread pools of TensorFlow and NumPy against the processors")
def threads(machine: Machine) -> Said | None:
    """Pools that are larger or much smaller than what may be used, and the variable that made them so."""
    allowed, pools = machine.processors.allowed, machine.sight.threads
    figures: dict[str, Figure] = {f"{pool}_threads": count for pool, count in pools.items()} | {"allowed_cpus": allowed}
    told = {name: int(text) for name in _VARIABLES if (text := machine.software.variables.get(name, "")).isdigit()}
    figures |= told
    for name, count in told.items():
        if count > max(allowed, machine.processors.affinity_cpus) + _SLACK:
            return Said(
                "note",
                f"{name}={count} on {allowed:g} processors: more threads than can run take turns",
                figures,
                f"Unset {name}, or set it to {max(int(allowed), 1)}.",
            )
        if 0 < count <= _HALF * allowed:
            who = "NumPy's linear algebra" if name.startswith("O") else "TensorFlow"
            return Said(
                "note",
                f"{name}={count}: {who} uses {count} of {allowed:g} processors",
                figures,
                f"Unset {name} unless processes share the machine on purpose.",
            )
    if not pools:
        return None
    sizes = ", ".join(f"{count} {pool.replace('_', '-')}" for pool, count in pools.items())
    return Said("ok", f"{sizes} threads for {allowed:g} processors", figures)


@check("neighbours", "what others take of the processors")
def neighbours(machine: Machine) -> Said:
    """Stolen time (the hypervisor ran something else), and other processes."""
    found = machine.processors
    figures: dict[str, Figure] = {
        "steal_share": found.steal_share,
        "foreign_share": found.foreign_share,
        "window_s": found.window_s,
    }
    if found.steal_share is None or found.foreign_share is None or found.window_s is None:
        return Said("unknown", "/proc/stat cannot be read", figures)
    taken = found.steal_share + found.foreign_share
    seen = (
        f"others took {taken:.0%} of the processors in {found.window_s:.1f} s "
        f"(processes {found.foreign_share:.0%}, the hypervisor {found.steal_share:.0%})"
    )
    if taken < _WORTH_SAYING:
        return Said("ok", seen, figures)
    # Other processes end, and are no fault of the machine; what lies below it takes its part every day.
    status: Status = "broken" if found.steal_share >= _A_QUARTER else "note"
    if found.steal_share > found.foreign_share:
        remedy = "The machine below this virtual one is oversold: take an instance with processors of its own."
    else:
        remedy = "See who it is (top -o %CPU), and end it or wait; measurements beside it take longer."
    return Said(status, seen, figures, remedy)
