"""Changes one operator, constant or result of a file at a time, and reports the changes that its tests do not notice.

    make mutate FILES="scaler/policy/idleness.py exporter/textformat/parser.py"   # SAMPLE=50 SEED=1 MINUTES=30

The tests of `scaler/policy/demand.py` are the files of `tests/scaler/policy`; those named after it run first, and the
first failure ends a run. Those of `scaler/policy/sizing.py` are the folder `sizing` there too. Each change ("mutant")
runs in a fork of a process that has loaded the libraries, so it costs what its tests cost. Kernels of the file's folder
run as Python, because to compile them anew would take most of the time; a kernel calls nothing outside of its folder.

mutmut rewrites every function of the project and wraps each, which numba does not compile; cosmic-ray edits the working
tree, and starts Python for each mutant.

Worked example: of `return waiting > 0` the mutants return `waiting >= 0`, `waiting <= 0`, `waiting > 1` and None.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import CodeType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Without those that pytest rewrites.
LIBRARIES = ("numpy", "numba", "aiohttp", "grpc.aio", "prometheus_client", "pydantic", "yaml", "kubernetes")
SLACK_S = 20.0  # a mutant may take so much longer than three times its tests

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


class Mutant(NamedTuple):
    """line: of the file. before, after: source of the changed expression. tree: of the whole file."""

    line: int
    before: str
    after: str
    tree: ast.Module


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    match node:
        case ast.Compare(ops=[operator]):
            for other in COMPARISONS.get(type(operator), ()):
                yield ast.Compare(node.left, [other()], node.comparators)
        case ast.BinOp(op=operator) if type(operator) in ARITHMETIC:
            yield ast.BinOp(node.left, ARITHMETIC[type(operator)](), node.right)
        case ast.BoolOp(op=operator):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield node.operand
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=str(value)) if value:
            yield ast.Constant(value + "XX")
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))


def _changeable(tree: ast.Module) -> Iterator[int]:
    """The places of nodes in `ast.walk`, without annotations, docstrings and the words of messages."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                skipped.update(map(id, ast.walk(node)))
            case (
                ast.arg(annotation=ast.expr() as type_)
                | ast.AnnAssign(annotation=type_)
                | ast.FunctionDef(returns=ast.expr() as type_)
            ):
                skipped.update(map(id, ast.walk(type_)))
            case ast.JoinedStr() | ast.Raise():
                skipped.update(id(each) for each in ast.walk(node) if isinstance(each, ast.Constant))
    yield from (place for place, node in enumerate(ast.walk(tree)) if id(node) not in skipped)


class _Swap(ast.NodeTransformer):
    def __init__(self, node: ast.AST, other: ast.AST) -> None:
        self._node, self._other = node, other

    def visit(self, node: ast.AST) -> ast.AST:
        return self._other if node is self._node else self.generic_visit(node)


def mutants(source: str) -> Iterator[Mutant]:
    """All mutants of a file, in order of its nodes."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    for place in _changeable(tree):
        for index in range(len(list(_replacements(nodes[place])))):
            changed = copy.deepcopy(tree)
            node = list(ast.walk(changed))[place]
            other = ast.fix_missing_locations(ast.copy_location(list(_replacements(node))[index], node))
            before, after = (ast.unparse(each).splitlines()[0] for each in (node, other))
            yield Mutant(getattr(node, "lineno", 0), before, after, _Swap(node, other).visit(changed))


def _load_from(tree: ast.Module, file: Path) -> None:
    """Loads the module of a file from a tree."""
    usual = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        return compile(tree, file, "exec") if loader.path == str(file) else usual(loader, name)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _run_kernels_as_python(folder: Path) -> None:
    """Leaves the kernels in a folder uncompiled."""
    jit: Any = importlib.import_module("exporter.jit")
    compile_now, compile_later = jit.kernel, jit.lazy_kernel

    def is_here(function: Any) -> bool:
        return Path(function.__code__.co_filename).parent == folder

    def kernel(signature: Any, **options: Any) -> Any:
        return lambda each: each if is_here(each) else compile_now(signature, **options)(each)

    def lazy_kernel(function: Any, **options: Any) -> Any:
        return function if is_here(function) else compile_later(function, **options)

    jit.kernel, jit.lazy_kernel = kernel, lazy_kernel


def tests_of(file: Path) -> list[str]:
    """The tests of a file: its own files and folder, and then the files of the nearest folder that mirrors its own."""
    mirror = Path("tests") / file.parent
    folder = next(each for each in (mirror, *mirror.parents) if (ROOT / each).is_dir())
    own = [*sorted((ROOT / folder).glob(f"test_{file.stem}*.py")), ROOT / folder / file.stem]
    found = [each for each in (*own, *sorted((ROOT / folder).glob("test_*.py"))) if each.exists()]
    return [str(each.relative_to(ROOT)) for each in dict.fromkeys(found)]


def run_tests(file: Path, tree: ast.Module, limit_s: float, more: Sequence[str], output: Path) -> bool:
    """Runs the tests of a file in a fork; returns whether they pass in time. more: arguments of pytest."""
    child = os.fork()
    if child == 0:
        os.setsid()
        code = 1
        for stream in (1, 2):
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        with suppress(BaseException):
            _load_from(tree, ROOT / file)
            _run_kernels_as_python((ROOT / file).parent)
            # NumPy warns of what compiled kernels do in silence.
            usual = ["-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=1", "-W", "ignore::RuntimeWarning"]
            code = int(pytest.main([*usual, *more, *tests_of(file)]))
        os._exit(code)
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def report_on(file: Path, sample: int, seed: int, until: float) -> int:
    """Prints the survivors of a file; returns their number. until: seconds of time.monotonic."""
    source, began = (ROOT / file).read_text(encoding="utf-8"), time.monotonic()
    with TemporaryDirectory() as folder:
        output = Path(folder, "output")
        run_tests(file, ast.parse(source), 600.0, (), output)
        failing = re.findall(r"^FAILED (\S+)", output.read_text(encoding="utf-8"), re.MULTILINE)
        limit_s = 3.0 * (time.monotonic() - began) + SLACK_S
        more = ["-x", *(f"--deselect={name}" for name in failing)]
        if not run_tests(file, ast.parse(source), limit_s, more, output):
            sys.exit(f"{file}: its tests fail without a change")
        say(f"{file}: without the tests that need compiled kernels: {failing}")
        every = list(mutants(source))
        survivors = tried = 0
        for each in Random(seed).sample(every, min(sample, len(every))):  # noqa: S311 - it is no secret
            if time.monotonic() > until:
                break
            tried += 1
            if run_tests(file, each.tree, limit_s, more, output):
                survivors += 1
                say(f"{file}:{each.line}: survived: {each.before}  ->  {each.after}")
    say(f"{file}: {tried} of {len(every)} mutants, {survivors} survived, {time.monotonic() - began:.0f} s")
    return survivors


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--sample", type=int, default=50, help="mutants of each file")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--minutes", type=float, default=30.0, help="limit of the whole run")
    given = parser.parse_args(arguments)
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    for name in LIBRARIES:
        importlib.import_module(name)
    until = time.monotonic() + 60.0 * given.minutes
    return min(1, sum(report_on(file, given.sample, given.seed, until) for file in given.files))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
