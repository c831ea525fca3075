"""The structure stays readable: sizes, packages, layers, names, no import cycles."""

import ast
import tomllib
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for top in ("exporter", "scaler") for path in (ROOT / top).rglob("*.py") if "_pb2" not in path.name]
LONGEST, MOST_PACKAGES, MOST_LAYERS = 600, 13, 8


def module(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache  # when first used: a worker that runs none of these tests collects them too
def trees():
    """The path and the syntax tree of each module of the product, by its name."""
    return {module(path): (path, ast.parse(path.read_text(encoding="utf-8"))) for path in SOURCES}


def imported(name):
    """The modules of the product that a module imports when it is imported."""
    path, tree = trees()[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                yield from {f"{source}.{alias.name}", source} & trees().keys()
        elif isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & trees().keys()


def test_no_module_is_too_long():
    lengths = {name: path.read_text().count("\n") for name, (path, _) in trees().items()}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}
    assert 100 <= median(lengths.values()) <= 300


def test_the_scaler_has_few_packages_and_few_layers():
    packages = {path.parent.name for path in (ROOT / "scaler").glob("*/__init__.py")}
    assert len(packages) <= MOST_PACKAGES, sorted(packages)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = [c["layers"] for c in settings["tool"]["importlinter"]["contracts"] if c.get("containers") == ["scaler"]]
    assert [len(each) for each in layers if len(each) <= MOST_LAYERS] == [len(each) for each in layers] != []


def test_no_two_modules_import_each_other():
    graph = {name: set(imported(name)) - {name} for name in trees()}
    # A package re-exports its modules: they need not be imported before it.
    for name, needs in graph.items():
        graph[name] = {need for need in needs if not name.startswith(f"{need}.")}
    # Raises CycleError, which names the circle.
    assert set(TopologicalSorter(graph).static_order()) == graph.keys()


def test_no_two_classes_have_the_same_name():
    classes = defaultdict(set)
    for name, (_, tree) in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and "Protocol" not in "".join(map(ast.unparse, node.bases)):
                classes[node.name].add(name)
    assert {name: modules for name, modules in classes.items() if len(modules) > 1} == {}
