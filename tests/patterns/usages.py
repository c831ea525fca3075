"""Finds every regular expression that `exporter` and `scaler` use, and the methods that are called on it.

Reads the source, since a compiled pattern does not know whether `match` or `search` is called on it. A pattern that is
built from local names cannot be evaluated here: `_LOCAL` gives what it can be.
"""

import ast
import importlib
import re
from pathlib import Path
from typing import NamedTuple

from exporter.agent.agent import lines_of
from scaler.config import scalars

ROOT = Path(__file__).parents[2]
METHODS = frozenset({"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"})


class Usage(NamedTuple):
    """One regular expression. position: file and line. methods: those called on it; if that is unclear, all of them."""

    position: str
    name: str
    pattern: str | bytes
    flags: int
    methods: frozenset[str]

    @property
    def compiled(self):
        return re.compile(self.pattern, self.flags)

    def __str__(self):
        return f"{self.position} {self.name}"


def usages():
    """Returns every usage, ordered by file and line."""
    return [one for package in ("exporter", "scaler") for path in sorted((ROOT / package).rglob("*.py"))
            for one in _of_module(path)]  # fmt: skip


def _of_module(path):
    text = path.read_text()
    if not re.search(r"\bre\.", text):  # a syntax tree takes a hundred times as long
        return
    tree, parents, called = ast.parse(text), {}, {}
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Attribute):
            parents[node.value] = node
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in METHODS:
            called.setdefault(node.value.id, set()).add(node.attr)
    file = path.relative_to(ROOT)
    for node in nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name) and node.func.value.id == "re"):  # fmt: skip
            continue
        if node.func.attr not in {*METHODS, "compile"}:
            continue
        name, methods = ast.unparse(node.args[0]), {node.func.attr}
        if node.func.attr == "compile":
            parent = parents.get(node)  # of other parents it says nothing
            if isinstance(parent, ast.Attribute):
                name, methods = "compile", {parent.attr}
            elif isinstance(parent, ast.Assign | ast.AnnAssign):
                target = parent.targets[0] if isinstance(parent, ast.Assign) else parent.target
                name = ast.unparse(target)
                methods = called.get(name) or METHODS
            else:
                name, methods = "compile", METHODS
        for pattern, flags in _values(node, file):
            yield Usage(f"{file}:{node.lineno}", name, pattern, flags, frozenset(methods))


def _values(node, file):
    namespace = vars(importlib.import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__")))
    flag_nodes = [word.value for word in node.keywords if word.arg == "flags"]
    # The position of `flags` differs between compile, sub, split and the other matching functions.
    index = (
        1 if node.func.attr == "compile" else 4 if node.func.attr == "sub" else 3 if node.func.attr == "split" else 2
    )
    flag_nodes += node.args[index : index + 1]
    flags = _evaluated(flag_nodes[0], namespace) if flag_nodes else 0
    try:
        return [(_evaluated(node.args[0], namespace), int(flags))]
    except NameError as unknown:
        return [(each, int(flags)) for each in _LOCAL[str(file), unknown.name]()]


def _evaluated(node, namespace):
    return eval(compile(ast.Expression(node), "<pattern>", "eval"), namespace)  # our own source


# The patterns that are built from local names: (file, name) -> patterns.
_LOCAL = {
    ("exporter/agent/agent.py", "names"): lambda: [lines_of("dcgm").pattern],
    ("scaler/config/scalars.py", "pattern"): lambda: [
        *(scalars.kubernetes_name(63, what).schema["pattern"] for what in ("namespace", "workload")),
        *(
            each.schema["pattern"]
            for each in vars(scalars).values()
            if isinstance(each, scalars.Scalar) and "pattern" in each.schema
        ),
    ],
    # A config's own expression, which is bounded where it is compiled.
    ("scaler/report/quantization.py", "text"): lambda: ["lm_head", r"model\.layers\.0\.mlp"],
    ("scaler/lint/objects.py", "sign"): lambda: [
        *importlib.import_module("scaler.lint.objects")._COMMANDS.values(),
        *importlib.import_module("scaler.lint.objects")._IMAGES.values(),
    ],
}
