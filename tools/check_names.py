"""Checks names and log events of the product: `python tools/check_names.py`, part of `make lint`.

An identifier must not be one of WORDS or end in one (`pods_seen`): such names say that something happened, not what
the value is. A log event is a short fixed name; what differs from line to line belongs in fields, so that one query
finds all lines of an event.

Worked example: `def told(self)` gives "scaler/x.py:3: name `told`: names no thing; choose a noun or a verb".
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("exporter", "scaler", "dashboards")
WORDS = frozenset({
    "told", "said", "heard", "seen", "asked", "made", "known", "taken", "believed", "own", "place", "words", "others",
    "nobody", "somebody", "everybody", "who", "whose", "whom", "waker", "outlook", "witness", "testimony", "census",
})  # fmt: skip
# By file: a method that asyncio calls.
ALLOWED = {"scaler/net.py": {"connection_made"}, "exporter/sources/plain_http.py": {"connection_made"}}
LOGS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
MOST_WORDS = 5
GENERATED = "_pb2"


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every identifier that a module defines, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def is_refused(name: str) -> bool:
    """Whether a name is one of WORDS, or ends in one, in snake case or camel case."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)
    return bool(parts) and parts[-1].lower() in WORDS


def events(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The first argument of every call of a log method, if it is a literal, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=attr, value=value), args=[ast.Constant(value=str(event)), *_]):
                logger = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
                if attr in LOGS and logger.strip("_").lower() in ("log", "logger"):
                    yield node.lineno, event


def problems(file: Path) -> Iterator[str]:
    """What is wrong with the names and log events of one file."""
    tree, shown = ast.parse(file.read_text(encoding="utf-8")), file.relative_to(ROOT)
    for line, name in names(tree):
        if is_refused(name) and name not in ALLOWED.get(shown.as_posix(), ()):
            yield f"{shown}:{line}: name `{name}`: names no thing; choose a noun, or a verb for a function"
    for line, event in events(tree):
        if len(event.split()) > MOST_WORDS or re.search(r"[.,:;]", event):
            yield f"{shown}:{line}: log event {event!r}: must be at most {MOST_WORDS} words without punctuation"


def main() -> int:
    """Prints every problem. Returns 1 if there is one."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    found = [problem for file in files if GENERATED not in file.name for problem in problems(file)]
    print(*found, sep="\n", end="\n" if found else "")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
