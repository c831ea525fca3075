"""Changes one operator, constant or result of a file at a time, and reports the changes that its tests do not notice.

    make mutate FILES="scaler/policy/idleness.py exporter/textformat/parser.py"   # SAMPLE=50 SEED=1 MINUTES=30

The tests of `scaler/policy/demand.py` are the files of `tests/scaler/policy`; those of `scaler/policy/sizing.py` are
the folder `sizing` there too. A file that gave no test its name has all tests below its folder. TESTS names more tests.

Each change ("mutant") runs in a fork, with the tests that call the changed function, the quickest first, until one
fails. The fork is of a process that has collected the tests, and replaces the function's code. A fork that loads the
module anew tries the rest: a change outside of functions, with the tests that call any function of the file, or all,
and a change of a function that no test calls, or a module while it is loaded, with all. Kernels of the file's folder
run as Python, because to compile them anew would take most of the time; a kernel calls nothing outside of its folder.
Hypothesis does not shrink its examples.

mutmut rewrites every function of the project and wraps each, which numba does not compile; cosmic-ray edits the working
tree, and starts Python for each mutant.

Worked example: of `return waiting > 0` the mutants return `waiting >= 0`, `waiting <= 0`, `waiting > 1` and None.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import gc
import importlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Without those that pytest rewrites.
LIBRARIES = ("numpy", "numba", "aiohttp", "grpc.aio", "prometheus_client", "pydantic", "yaml", "kubernetes")
UNDECIDED = 99  # exit code of a fork that raises
SLACK_S = 10.0  # a mutant may take so much longer than three times its tests

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
    """line: of the file. before, after: source of the changed expression. function: line of the outermost function
    that runs it, 0 if it runs with the module. source: of the file. place, index: of the node and its replacement.
    """

    line: int
    before: str
    after: str
    function: int
    source: str
    place: int
    index: int

    @property
    def tree(self) -> ast.Module:
        """The whole file."""
        tree = ast.parse(self.source)
        node = list(ast.walk(tree))[self.place]
        other = list(_replacements(node))[self.index]
        changed: ast.Module = _Swap(node, ast.fix_missing_locations(ast.copy_location(other, node))).visit(tree)
        return changed


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
    """The places of nodes in `ast.walk`, without annotations, docstrings, assertions and the words of messages."""
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
            case ast.keyword(arg="strict"):  # of zip: an assertion
                skipped.add(id(node.value))
            case ast.JoinedStr() | ast.Raise():
                skipped.update(id(each) for each in ast.walk(node) if isinstance(each, ast.Constant))
    yield from (place for place, node in enumerate(ast.walk(tree)) if id(node) not in skipped)


class _Swap(ast.NodeTransformer):
    def __init__(self, node: ast.AST, other: ast.AST) -> None:
        self._node, self._other = node, other

    def visit(self, node: ast.AST) -> ast.AST:
        return self._other if node is self._node else self.generic_visit(node)


def _functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The outermost functions."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each
        else:
            yield from _functions(each)


def mutants(source: str) -> Iterator[Mutant]:
    """All mutants of a file, in order of its nodes."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    inside = {
        id(node): each.lineno for each in _functions(tree) for statement in each.body for node in ast.walk(statement)
    }
    for place in _changeable(tree):
        node = nodes[place]
        for index, other in enumerate(_replacements(node)):
            before, after = (ast.unparse(each).splitlines()[0] for each in (node, other))
            yield Mutant(getattr(node, "lineno", 0), before, after, inside.get(id(node), 0), source, place, index)


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
    """The tests of a file: its own files and folder, and then the files of the nearest folder that mirrors its own, or
    all below that.
    """
    mirror = Path("tests") / file.parent
    folder = next(each for each in (mirror, *mirror.parents) if (ROOT / each).is_dir())
    own = [*sorted((ROOT / folder).glob(f"test_{file.stem}*.py")), ROOT / folder / file.stem]
    own = [each for each in own if each.exists()]
    found = [*own, *sorted((ROOT / folder).glob("test_*.py"))] if own else [ROOT / folder]
    return [str(each.relative_to(ROOT)) for each in dict.fromkeys(found)]


class Test(NamedTuple):
    """calls: the outermost functions that it calls, as "file:line:"."""

    passes: bool
    seconds: float
    calls: list[str]


class _Unshrunk:
    """A plugin of pytest that leaves the examples that Hypothesis finds as they are."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # noqa: PLC0415 - pytest rewrites it first

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutate", settings.default, phases=phases, database=None)
        settings.load_profile("mutate")


class _Trials:
    """A plugin of pytest that tries mutants of functions after it has collected the tests, and leaves in `folder` the
    tests by name, and the outcomes by file: for each mutant the exit code, None if it took too long, UNDECIDED if it
    was not tried.
    """

    def __init__(self, tried: Mapping[Path, Sequence[Mutant]], until: float, folder: Path) -> None:
        self._tried, self._until, self._folder = tried, until, folder
        self._functions: dict[Path, list[FunctionType]] = {}
        self._calls: set[str] = set()
        self._calls_of_fixtures: dict[str, set[str]] = {}
        self._imported: set[str] = set()  # the functions that a module calls while it is loaded
        builtins._calls = self._calls  # type: ignore[attr-defined] # noqa: SLF001 - a name that every module has
        for file in tried:
            _load_from(_marked(file), ROOT / file)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Notes the calls of a fixture that several tests share for all of them."""
        before = set(self._calls)
        self._calls.clear()
        result = yield
        if fixturedef.scope != "function":
            self._calls_of_fixtures[fixturedef.argname] = set(self._calls)
        self._calls.update(before)
        return result

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._imported = set(self._calls)
        gc.unfreeze()  # frozen objects are not listed
        functions = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
        for file in self._tried:
            self._functions[file] = [each for each in functions if each.__code__.co_filename == str(ROOT / file)]
        fork_and_wait(lambda: self._measure(session), 1e4)
        tests = {name: Test(*each) for name, each in _read(self._folder / "tests").items()}
        outcomes = {
            str(file): [self._try(session, file, mutant, tests) for mutant in tried]
            for file, tried in self._tried.items()
        }
        (self._folder / "outcomes").write_text(json.dumps(outcomes), encoding="utf-8")
        return True

    def _try(self, session: pytest.Session, file: Path, mutant: Mutant, tests: Mapping[str, Test]) -> int | None:
        function = f"{file}:{mutant.function}:"
        names = [] if function in self._imported else callers(tests, function)
        if not names or time.monotonic() > self._until:
            return UNDECIDED

        def trial() -> int:
            _replace_code(self._functions[file], mutant.tree, ROOT / file)
            items = {item.nodeid: item for item in session.items}
            for name, following in zip(names, [*names[1:], None], strict=True):
                # In time of the processor, a loop without an end is found on a busy machine too.
                signal.setitimer(signal.ITIMER_PROF, 3.0 * tests[name].seconds + 0.5 * SLACK_S)
                if _fails(session, items[name], following and items[following]):
                    return 1
            return 0

        return fork_and_wait(trial, limit_s(tests, names))

    def _measure(self, session: pytest.Session) -> int:
        """Writes each test down."""
        tests = {}
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            self._calls.clear()
            began = time.monotonic()
            fails = _fails(session, item, following)
            shared = (self._calls_of_fixtures.get(name, set()) for name in getattr(item, "fixturenames", ()))
            tests[item.nodeid] = Test(not fails, time.monotonic() - began, sorted(self._calls.union(*shared)))
        (self._folder / "tests").write_text(json.dumps(tests), encoding="utf-8")
        return 0


def _marked(file: Path) -> ast.Module:
    """A file whose functions note their calls."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    for outer in list(_functions(tree)):
        for each in list(ast.walk(outer)):
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                place = int(ast.get_docstring(each) is not None)
                each.body[place:place] = ast.parse(f"_calls.add('{file}:{outer.lineno}:')").body
    return tree


class _Chosen:
    """A plugin of pytest that runs these tests alone, in this order."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[name] for name in self._names]


def callers(tests: Mapping[str, Test], function: str) -> list[str]:
    """The tests that pass and call a function whose name begins so, the quickest first."""
    names = [
        name for name, test in tests.items() if test.passes and any(call.startswith(function) for call in test.calls)
    ]
    return sorted(names, key=lambda name: tests[name].seconds)


def limit_s(tests: Mapping[str, Test], names: Sequence[str]) -> float:
    return 3.0 * sum(tests[name].seconds for name in names) + SLACK_S


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _fails(session: pytest.Session, item: pytest.Item, following: pytest.Item | None) -> bool:
    """Runs a test. following: the next test to run."""
    before = session.testsfailed
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return session.testsfailed > before


def _replace_code(functions: Sequence[FunctionType], tree: ast.Module, file: Path) -> None:
    def name(code: CodeType) -> tuple[str, int]:
        return code.co_qualname, code.co_firstlineno

    def within(code: CodeType) -> Iterator[CodeType]:
        for each in code.co_consts:
            if isinstance(each, CodeType):
                yield each
                yield from within(each)

    codes = list(within(compile(tree, file, "exec")))
    often = Counter(map(name, codes))  # two functions without a name may stand in a line
    changed = {name(each): each for each in codes if often[name(each)] == 1}
    for function in functions:
        function.__code__ = changed.get(name(function.__code__), function.__code__)


def fork_and_wait(run: Callable[[], int], limit_s: float) -> int | None:
    """Returns the exit code of a fork; None if it took longer. A fork that raises exits with UNDECIDED."""
    child = os.fork()
    if child == 0:
        os.setsid()
        code = UNDECIDED
        with suppress(BaseException):
            code = run()
        os._exit(code)
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def run_pytest(file: Path, paths: Sequence[str], *plugins: object) -> int:
    """Runs tests of a file, in a process that ends with them. paths: of the tests."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    _run_kernels_as_python((ROOT / file).parent)
    # NumPy warns of what compiled kernels do in silence.
    usual = ["-qx", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=1", "-W", "ignore::RuntimeWarning"]
    return int(pytest.main([*usual, *paths], plugins=[_Unshrunk(), *plugins]))


def report_on(files: Sequence[Path], paths: Sequence[str], sample: int, seed: int, until: float) -> int:
    """Prints the survivors of files that have the same tests; returns their number. until: of time.monotonic."""
    began = time.monotonic()
    every = {file: list(mutants((ROOT / file).read_text(encoding="utf-8"))) for file in files}
    tried = {file: Random(seed).sample(each, min(sample, len(each))) for file, each in every.items()}  # noqa: S311
    with TemporaryDirectory() as name:
        folder = Path(name)
        fork_and_wait(lambda: run_pytest(files[0], paths, _Trials(tried, until, folder)), 1e6)
        tests = {each: Test(*test) for each, test in _read(folder / "tests").items()}
        outcomes = _read(folder / "outcomes")
    say(f"without the tests that need compiled kernels: {[name for name, test in tests.items() if not test.passes]}")
    survivors = 0
    for file in files:
        found: list[int | None] = []
        for mutant, outcome in zip(tried[file], outcomes[str(file)], strict=True):
            if outcome == UNDECIDED and time.monotonic() > until:
                continue
            found.append(_try_anew(file, paths, mutant, tests) if outcome == UNDECIDED else outcome)
            if found[-1] == 0:
                say(f"{file}:{mutant.line}: survived: {mutant.before}  ->  {mutant.after}")
        say(f"{file}: {len(found)} of {len(every[file])} mutants, {found.count(0)} survived")
        survivors += found.count(0)
    say(f"{time.monotonic() - began:.0f} s")
    return survivors


def _try_anew(file: Path, paths: Sequence[str], mutant: Mutant, tests: Mapping[str, Test]) -> int | None:
    # A change of a function is tried here if no test calls it, but perhaps a module that is loaded.
    names = [] if mutant.function else callers(tests, f"{file}:")
    names = names or [name for name, test in tests.items() if test.passes]

    def trial() -> int:
        _load_from(mutant.tree, ROOT / file)
        return run_pytest(file, paths, _Chosen(names))

    return fork_and_wait(trial, limit_s(tests, names) + SLACK_S)


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tests", nargs="*", default=[], help="files and folders of more tests")
    parser.add_argument("--sample", type=int, default=50, help="mutants of each file")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--minutes", type=float, default=30.0, help="limit of the whole run")
    given = parser.parse_args(arguments)
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    for name in LIBRARIES:
        importlib.import_module(name)
    until = time.monotonic() + 60.0 * given.minutes
    together: dict[tuple[Path, frozenset[str]], list[Path]] = {}
    for file in given.files:
        together.setdefault((file.parent, frozenset([*tests_of(file), *given.tests])), []).append(file)
    return min(
        1,
        sum(report_on(files, sorted(paths), given.sample, given.seed, until) for (_, paths), files in together.items()),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
