"""Why a GPU's clocks are where they are: the bits of ``nvmlClocksEventReasons`` (nvml.h) by name.

Apart from the NVML probe, so that rules can name the bits of a recorded mask without NVIDIA's bindings.
"""

from __future__ import annotations

from typing import Final

REASONS: Final = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
HEAT: Final = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown"})
POWER: Final = frozenset({"sw_power_cap", "hw_power_brake_slowdown"})
SLOWED: Final = HEAT | POWER | {"hw_slowdown", "board_limit", "reliability"}
"""Reasons that hold the clocks below what was asked for; idle and settings by hand are not among them."""


def throttle_reason_names(mask: int) -> tuple[str, ...]:
    """The names of a mask's bits, lowest first; a bit that is not known is ``bit_<n>``."""
    bits = (1 << n for n in range(mask.bit_length()) if mask >> n & 1)
    return tuple(REASONS.get(bit, f"bit_{bit.bit_length() - 1}") for bit in bits)
