"""A share as people write it: ``5%``, ``0.05``."""

from __future__ import annotations

import math


def share(value: float | str, name: str) -> float:
    """The share as a number between 0 and 1, both left out.

    Args:
        value: a number, or text that may end with ``%``.
        name: of the option, for the message.

    Raises:
        ValueError: it is none.
    """
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = math.nan
    if not 0 < number < 1:
        raise ValueError(f"{name}: a share between 0 and 1, such as 0.05 or 5%, is expected; got {value!r}")
    return number
