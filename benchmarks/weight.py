"""What the project weighs: lines of code by package, without docstrings, comments and blank lines.

Docstrings and comments are not counted, so that nobody deletes a useful one for a number.

    python benchmarks/weight.py [FOLDER ...]
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
_ENDS = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)
_NO_CODE = (tokenize.COMMENT, *_ENDS)


def code_lines(text: str) -> int:
    """Lines of a module that hold code; a statement of three lines counts three times.

    Raises:
        SyntaxError: the text is no Python.
    """
    strings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        # A string that stands alone documents what it follows: a module, a class, a function, an attribute.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - strings)


def main() -> None:
    """Print the lines of each package, largest first, and their sum."""
    for folder in map(Path, sys.argv[1:] or ("xttsbench", "tests")):
        found: Counter[str] = Counter()
        for file in sorted((ROOT / folder).rglob("*.py")):
            within = file.relative_to(ROOT / folder)
            found[within.parts[0]] += code_lines(file.read_text(encoding="utf-8"))
        for name, lines in found.most_common():
            print(f"{lines:7,}  {folder}/{name}")
        print(f"{sum(found.values()):7,}  {folder}")


if __name__ == "__main__":
    main()
