"""From XLA's instructions back to TensorFlow's ops, by the metadata in the text of a compiled module. Pure."""

from __future__ import annotations

import re
from typing import Final

_INSTRUCTION: Final = re.compile(r"^\s*(?:ROOT\s+)?%?([\w.\-]+)\s*=.*metadata=\{([^}]*)\}", re.MULTILINE)
_NAME: Final = re.compile(r'op_name="([^"]*)"')
_TYPE: Final = re.compile(r'op_type="([^"]*)"')


def op_names(hlo: str) -> dict[str, tuple[str, str]]:
    """Instruction -> (name, type) of the op that it was made of; fusions carry that of their root."""
    found = {}
    for match in _INSTRUCTION.finditer(hlo):
        name, kind = _NAME.search(match[2]), _TYPE.search(match[2])
        if name is not None and name[1]:
            found[match[1]] = (name[1], kind[1] if kind else "")
    return found
