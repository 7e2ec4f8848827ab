"""How long a trial may take, and how long it may be silent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Seconds: ``time_s`` for the whole trial, ``stall_s`` without any sign of life (a phase begun, rows of steps)."""

    time_s: float
    stall_s: float

    def __post_init__(self) -> None:
        if self.time_s <= 0 or self.stall_s <= 0:
            raise ValueError(f"limits must be positive, got time_s={self.time_s}, stall_s={self.stall_s}")
