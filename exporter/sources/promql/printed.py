r"""Series as exposition text: the inverse of `exporter.textformat`, as far as one line.

Worked example: `head("up", {"job": 'a "b"'})` is `b'up{job="a \\"b\\""}'`, and `line` of it with 1.0 at 1700000000.5
adds `b' 1.0 1700000000500\n'`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Prometheus 3 allows any UTF-8 in names; what is not the classic grammar is written in quotes.
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def head(name: str, labels: Mapping[str, str]) -> bytes:
    """Name and labels, these in the order of their names: one series has one head."""
    pairs = [f"{_label(label)}={_quoted(value)}" for label, value in sorted(labels.items())]
    if _NAME.fullmatch(name):
        return (f"{name}{{{','.join(pairs)}}}" if pairs else name).encode()
    return f"{{{','.join([_quoted(name), *pairs])}}}".encode()


def line(head: bytes, value: float, at: float) -> bytes:
    """A whole line. `at`: POSIX seconds; the text has whole milliseconds, which is what servers keep."""
    return b"%s %a %d\n" % (head, value, round(at * 1000))


def _label(name: str) -> str:
    return name if _LABEL.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'
