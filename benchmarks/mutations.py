"""How many faults the tests notice: one line broken at random in each of 40 modules, and the tests of that module run.

``python benchmarks/mutations.py [--seed 0] [--modules 40] [--coverage FILE] [--limit 240] [--for 600] [--out FILE]``:
a comparison negated, plus and minus or times and divided by swapped, a number or truth value changed, a ``not``
dropped, or ``None`` returned. Tests run in a copy of the checkout, until one fails or the limit in seconds is over.

With ``--coverage`` these are the tests that run the line, those that run the least besides first, as pytest-cov has
recorded it (``pip install pytest-cov``, then ``pytest -p pytest_cov tests/unit tests/tf -m "not slow and not alone"
--cov=xttsbench --cov-context=test --cov-report=``, which writes ``.coverage``); of a line that runs while its module
is imported, the tests that run anything of the module. A line that none of them runs may run in another process: then,
and without ``--coverage``, they are chosen by name: the mirrored file, the mirrored folder, files that name the module,
and the tests end to end last.

A test that fails is run again on the sound copy, so that one that fails anyway counts for nothing; a fault that keeps
tests from ending which end without it in time is noticed, too. ``--out`` keeps what
was tried and goes on from there; ``--for`` begins no new fault after so many seconds. The last lines are those that
nobody noticed, and the counts.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.Lt: ast.GtE,
    ast.Gt: ast.LtE,
    ast.In: ast.NotIn,
    ast.Is: ast.IsNot,
}
OPPOSITE |= {after: before for before, after in OPPOSITE.items()}
SWAPPED: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Mult: ast.Div}
SWAPPED |= {after: before for before, after in SWAPPED.items()}


@dataclass(frozen=True)
class Fault:
    """One line, broken.

    Attributes:
        module: path below the checkout.
        line: its number, from 1.
        kind: what was done to it.
        before: the line as it is.
        after: the line as it is broken.
    """

    module: str
    line: int
    kind: str
    before: str
    after: str


def faults(module: str, source: str) -> Iterator[Fault]:
    """All faults of one line that this module can have."""
    lines = source.splitlines()
    for node in _running(ast.parse(source)):
        for kind, broken in _broken(node):
            if node.lineno != node.end_lineno:
                continue
            before = lines[node.lineno - 1].encode()
            text = ast.unparse(broken)
            text = text if isinstance(broken, ast.stmt) else f"({text})"
            after = (before[: node.col_offset] + text.encode() + before[node.end_col_offset :]).decode()
            yield Fault(module, node.lineno, kind, before.decode(), after)


def _running(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """The nodes that do something when the program runs: no annotations, no f-strings, nothing for type checkers."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.expr | ast.stmt):
                yield child
            yield from _running(child)


def _broken(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=comparators) if type(op) in OPPOSITE:
            yield "comparison negated", ast.Compare(left, [OPPOSITE[type(op)]()], comparators)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPPED:
            if not any(
                isinstance(side, ast.JoinedStr | ast.List | ast.Tuple) or _is_text(side) for side in (left, right)
            ):
                yield "operator swapped", ast.BinOp(left, SWAPPED[type(op)](), right)
        case ast.Constant(value=bool(value)):
            yield "truth value flipped", ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "number changed", ast.Constant(value + 1 if isinstance(value, int) else value * 2 + 1)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not dropped", operand
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "None returned", ast.Return(ast.Constant(None))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def chosen(root: Path, seed: int, count: int) -> list[Fault]:
    """One fault in each of so many modules; a kind is drawn before a line, since numbers are many."""
    drawn = random.Random(seed)
    modules = sorted(path.relative_to(root).as_posix() for path in (root / "xttsbench").rglob("*.py"))
    drawn.shuffle(modules)
    found: list[Fault] = []
    for module in modules:
        if len(found) == count:
            break
        possible = list(faults(module, (root / module).read_text(encoding="utf-8")))
        if possible and tests_of(root, module):
            kind = drawn.choice(sorted({fault.kind for fault in possible}))
            found.append(drawn.choice([fault for fault in possible if fault.kind == kind]))
    return found


def tests_of(root: Path, module: str) -> list[str]:
    """The files of tests that are likely to notice a fault of a module, the likeliest first."""
    path = Path(module).with_suffix("").relative_to("xttsbench")
    stem = path.parent.name if path.name == "__init__" else path.name
    folder, full = re.escape(".".join(path.parts[:-1])), re.escape(".".join(path.parts))
    dotted = re.compile(rf"xttsbench\.{full}\b|from xttsbench\.{folder} import .*\b{stem}\b")
    found: dict[str, None] = {}
    tiers = [root / "tests" / "unit", root / "tests" / "tf"]
    folders = [tier / path.parent for tier in tiers]
    for place in [
        *(folder.glob(f"test_{stem}*.py") for folder in folders),
        *((tier / path).glob("test_*.py") for tier in tiers),
    ]:
        found |= dict.fromkeys(map(str, sorted(place)))
    if len(path.parts) > 1:
        for folder in folders:
            found |= dict.fromkeys(map(str, sorted(folder.glob("test_*.py"))))
    for tier in tiers:
        for file in sorted(tier.rglob("test_*.py")):
            if dotted.search(_text(file)):
                found[str(file)] = None
    return [str(Path(file).relative_to(root)) for file in found]


@dataclass(frozen=True)
class Covered:
    """Which tests run which line.

    Attributes:
        root: the checkout.
        tests: module -> line -> the tests that run it; ``""`` stands for what runs while the module is imported.
    """

    root: Path
    tests: Mapping[str, Mapping[int, Collection[str]]]

    @classmethod
    def read(cls, file: Path, root: Path) -> Covered:
        """From a data file of coverage.py whose contexts are those of pytest-cov: a test and its phase."""
        from coverage import CoverageData

        data = CoverageData(str(file))
        data.read()
        return cls(
            root,
            {
                f"xttsbench/{Path(name).as_posix().rpartition('/xttsbench/')[2]}": {
                    line: {context.rpartition("|")[0] for context in contexts}
                    for line, contexts in data.contexts_by_lineno(name).items()
                }
                for name in data.measured_files()
            },
        )

    @functools.cached_property
    def lines_of(self) -> Counter[str]:
        """Test -> how many lines of the package it runs."""
        return Counter(test for lines in self.tests.values() for tests in lines.values() for test in tests)

    def tests_of(self, module: str, line: int) -> list[str]:
        """The tests that run a line, those without TensorFlow first; of an imported line, those of its module."""
        known = self.tests.get(module, {})
        lines = _statement(ast.parse((self.root / module).read_text(encoding="utf-8")), line)
        wanted = known.values() if lines is None else [known.get(one, ()) for one in lines]
        found = {test for some in wanted for test in some} - {""}
        return sorted(found, key=lambda test: (not test.startswith("tests/unit/"), self.lines_of[test], test))


def _statement(tree: ast.Module, line: int) -> range | None:
    """The lines of the simple statement or the head of a compound one; ``None`` for one that runs during the import."""
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        and (node.body if isinstance(node, ast.Lambda) else node.body[0]).lineno <= line <= (node.end_lineno or line)
    ]
    if not inside:
        return None
    around = [
        range(node.lineno, (_end_of_head(node) or line) + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt | ast.match_case | ast.ExceptHandler) and hasattr(node, "lineno")
    ]
    return min((lines for lines in around if line in lines), key=len, default=range(line, line + 1))


def _end_of_head(node: ast.AST) -> int | None:
    body = getattr(node, "body", None)
    return body[0].lineno - 1 if isinstance(body, list) and body else getattr(node, "end_lineno", None)


@functools.cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def copy_of(root: Path, folder: Path) -> Path:
    """A copy of what git knows, and of what is new, for faults to be planted in."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)
    return folder


def ran(copy: Path, tests: list[str], limit_s: float) -> tuple[int | None, str]:
    """Exit code of pytest, ``None`` after the limit, and the first test that failed."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not alone",
        *tests,
    ]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": ""}
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return None, ""
    named = re.search(r"^(?:FAILED|ERROR) (\S+(?:\[.*?\])?)(?: - |$)", out, re.MULTILINE)
    return process.returncode, named[1] if named else ""


def tried(copy: Path, fault: Fault, limit_s: float, covering: list[str] | None = None) -> dict[str, object]:
    """Plant a fault, see whether one of these tests fails, or of those chosen by name, and mend it."""
    file, began = copy / fault.module, time.monotonic()
    sound = file.read_text(encoding="utf-8")
    lines = sound.splitlines(keepends=True)
    lines[fault.line - 1] = fault.after + "\n"
    tests = covering or [*tests_of(copy, fault.module), *(["tests/e2e"] if covering is not None else [])]
    try:
        file.write_text("".join(lines), encoding="utf-8")
        code, test = ran(copy, tests, limit_s)
    finally:
        file.write_text(sound, encoding="utf-8")
    if code is None:  # noticed where only the fault keeps the tests from ending
        noticed, test = (
            ("noticed", "no end") if ran(copy, tests, limit_s)[0] == 0 else ("survived what ran in time", "")
        )
    elif code == 0:
        noticed = "survived"
    else:
        noticed = "noticed" if ran(copy, [test or tests[0]], limit_s)[0] == 0 else "the test fails anyway"
    return {
        **asdict(fault),
        "outcome": noticed,
        "test": test,
        "tests": len(tests),
        "chosen": "by coverage" if covering else "by name",
        "seconds": round(time.monotonic() - began),
    }


def main() -> None:
    """Break, test, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the choice of modules and lines")
    parser.add_argument("--modules", type=int, default=40, help="how many are broken")
    parser.add_argument("--coverage", type=Path, default=None, help="what pytest-cov recorded of the sound checkout")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for the tests of a fault")
    parser.add_argument("--for", type=float, default=3600.0, dest="for_s", help="seconds after which no other is begun")
    parser.add_argument("--out", type=Path, default=None, help="a file that keeps what was tried")
    options = parser.parse_args()
    began = time.monotonic()
    kept = options.out.read_text(encoding="utf-8").splitlines() if options.out and options.out.exists() else []
    results = [json.loads(line) for line in kept]
    done = {(one["module"], one["line"], one["after"]) for one in results}
    covered = Covered.read(options.coverage, ROOT) if options.coverage else None
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of(ROOT, Path(folder))
        for fault in chosen(ROOT, options.seed, options.modules):
            if (fault.module, fault.line, fault.after) in done or time.monotonic() - began > options.for_s:
                continue
            results.append(tried(copy, fault, options.limit, covered and covered.tests_of(fault.module, fault.line)))
            print(json.dumps(results[-1]), flush=True)
            if options.out:
                options.out.write_text("".join(json.dumps(one) + "\n" for one in results), encoding="utf-8")
    counts = Counter(one["outcome"] for one in results)
    for one in results:
        if one["outcome"] != "noticed":
            print(
                f"{one['outcome']}: {one['module']}:{one['line']}: {one['before'].strip()}  ->  {one['after'].strip()}"
            )
    print(f"{counts['noticed']} of {len(results)} noticed; {dict(counts)}")


if __name__ == "__main__":
    main()
