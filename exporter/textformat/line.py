"""The grammar of one line, in plain Python: what a sample line says, or why it is not one.

It knows Prometheus text 0.0.4 and OpenMetrics 1.0 a line at a time, in bytes. It refuses to know pages, families
and what a name means. The scanner's kernel repeats this grammar for speed; where the two could differ, this is right.

Worked example: `read_line(b'up{job="a"} 1 1700000000000', openmetrics=False)` is `(11, 1.0, 1700000000.0)`: the head
(name and labels) is the first 11 bytes, the value 1, measured at 1700000000 s. `read_series(b'up{job="a"}')` is
`("up", {"job": "a"})`.

What is accepted beyond the letter of the format, because exporters print it: blanks around names, `=` and `,`; a comma
after the last label; a backslash that escapes nothing (kept as it is). An exemplar, from ` #` on, is not read at all.
Numbers are those Prometheus takes (Go's ParseFloat without its newer forms): decimal, `inf` and `infinity` with an
optional sign, `nan` without one, in any case. So no `1_0`, no hexadecimal, and nothing that overflows: an infinity
that nobody wrote is an invented number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

# Possessive quantifiers (`*+`) throughout: a page is untrusted, and a match that never backtracks is linear.
_BLANKS = re.compile(rb"[ \t]*+")
_BLANK = re.compile(rb"[ \t]++")
_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*+")
_FAMILY = re.compile(rb'[ \t]*+(?:([a-zA-Z_:][a-zA-Z0-9_:]*+)|\{[ \t]*+"([^"\\]++)")')
_LABEL = re.compile(rb"[a-zA-Z_][a-zA-Z0-9_]*+")
_QUOTED = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_ESCAPE = re.compile(rb'\\([\\"n])')
_NUMBER = re.compile(
    rb"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[+-]?inf(?:inity)?|nan", re.IGNORECASE
)
_INTEGER = re.compile(rb"[+-]?[0-9]++")
_DECIMAL = re.compile(rb"[+-]?(?:[0-9]++\.[0-9]*+|\.[0-9]++)")
_TYPE = re.compile(rb"[ \t]*+#[ \t]*+TYPE[ \t]++(\"[^\"]++\"|[^ \t\"]++)[ \t]++([a-z]++)[ \t\r]*+")

_QUOTED_TEXT = 40  # characters of a bad value shown to a person
_INT64 = 2**63
_UNESCAPED = {b"\\": b"\\", b'"': b'"', b"n": b"\n"}


_PAIR = rb'([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
# A head without quoted names, at one stroke: the reader below it finds the same, and says what is wrong with others.
_COMMON = re.compile(
    rb"[ \t]*+([a-zA-Z_:][a-zA-Z0-9_:]*+)[ \t]*+\{[ \t]*+(?:" + _PAIR + rb"[ \t]*+(?:,[ \t]*+|(?=\})))*+\}", re.DOTALL
)
_PAIRS = re.compile(_PAIR, re.DOTALL)


class LineError(ValueError):
    """A line that is no sample; `args[0]` is the reason, as it stands in `Dropped`."""


class _Head(NamedTuple):
    name: bytes
    labels: dict[bytes, bytes]  # unescaped
    end: int  # where name and labels end in the line


def is_openmetrics(body: bytes) -> bool:
    """Whether the last line is `# EOF`, which OpenMetrics demands and nothing else writes."""
    last = body[-64:].rstrip(b" \t\r\n")
    return last.endswith(b"\n# EOF") or (last == b"# EOF" and len(body) <= 64)  # noqa: PLR2004 - the slice above


def read_line(line: bytes, *, openmetrics: bool) -> tuple[int, float, float]:
    """Where the head ends, the value, and the line's own time in POSIX seconds (NaN if it has none).

    `line` is without its end: no line feed, nor the one carriage return that may stand before it.
    """
    end = _read_head(line).end
    value, at = read_tail(line[end:], openmetrics=openmetrics)
    if not is_utf8(line[:end]):
        raise LineError("not UTF-8")
    return end, value, at


def is_utf8(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError:
        return False
    return True


def read_series(head: bytes) -> tuple[str, Mapping[str, str]]:
    """Name and labels of a head that `read_line` accepted."""
    name, labels, _ = _read_head(head)
    return name.decode(), MappingProxyType({key.decode(): value.decode() for key, value in labels.items()})


def family_of(line: bytes) -> str:
    """The family name that a line begins with, whether or not the line parses; "" if it begins with none."""
    match = _FAMILY.match(line)
    return "" if match is None else (match[1] or match[2]).decode(errors="replace")


def read_tail(tail: bytes, *, openmetrics: bool) -> tuple[float, float]:
    """Value and own time (POSIX seconds, NaN if it has none) from what follows the head."""
    tail = tail.strip(b" \t")
    value_text, rest = _word(tail)
    if not value_text or value_text.startswith(b"#"):
        raise LineError("no value")
    value = _number(value_text)
    if value is None:
        raise LineError(f"bad value: {_shown(tail)}")
    at_text, exemplar = _word(rest)
    if not at_text or at_text.startswith(b"#"):
        return value, math.nan
    at = _seconds(at_text, openmetrics=openmetrics)
    if at is None or (exemplar and not exemplar.startswith(b"#")):
        raise LineError(f"bad timestamp: {_shown(rest)}")
    return value, at


def read_type(line: bytes) -> tuple[str, str] | None:
    """Family and type from a `# TYPE` line; None if it is not a whole one."""
    match = _TYPE.fullmatch(line)
    if match is None or not is_utf8(match[1]):
        return None
    return _unescape(match[1].strip(b'"')).decode(), match[2].decode()


def _read_head(line: bytes) -> _Head:
    common = _COMMON.match(line)
    if common is not None:
        pairs = _PAIRS.findall(line, common.end(1), common.end())
        labels = dict(pairs) if b"\\" not in common[0] else {key: _unescape(value) for key, value in pairs}
        if len(labels) < len(pairs):
            raise LineError("duplicate label")
        return _Head(common[1], labels, common.end())
    at = _skip(line, 0)
    name = _NAME.match(line, at)
    if name is not None:
        at = name.end()
    brace = _skip(line, at)
    if line[brace : brace + 1] == b"{":
        return _read_labels(line, brace + 1, name[0] if name is not None else None)
    if name is None or line[at : at + 1] not in (b"", b" ", b"\t"):
        raise LineError("not a sample")
    return _Head(name[0], {}, at)


def _read_labels(line: bytes, at: int, name: bytes | None) -> _Head:
    labels: dict[bytes, bytes] = {}
    while (at := _skip(line, at)) < len(line) and line[at : at + 1] != b"}":
        key, at, quoted = _read_key(line, at)
        if line[at : at + 1] == b"=":
            if key in labels:
                raise LineError("duplicate label")
            labels[key], at = _read_value(line, _skip(line, at + 1))
        elif quoted and name is None and not labels:
            name = key  # Prometheus 3: {"my.metric", l="v"}
        else:
            raise LineError("bad label")
        at = _skip(line, at)
        if line[at : at + 1] == b",":
            at += 1
        elif line[at : at + 1] != b"}":
            raise LineError("bad label")
    if at >= len(line):
        raise LineError("bad label")
    if name is None:
        raise LineError("no metric name")
    return _Head(name, labels, at + 1)


def _read_key(line: bytes, at: int) -> tuple[bytes, int, bool]:
    """A label's name (or, quoted, perhaps the metric's), the next byte that is no blank, and whether it is quoted."""
    bare = _LABEL.match(line, at)
    if bare is not None:
        return bare[0], _skip(line, bare.end()), False
    if line[at : at + 1] != b'"':
        raise LineError("bad label")
    key, at = _read_value(line, at)
    if not key:
        raise LineError("bad label")
    return key, _skip(line, at), True


def _read_value(line: bytes, at: int) -> tuple[bytes, int]:
    quoted = _QUOTED.match(line, at)
    if quoted is None:
        raise LineError("unterminated label value" if line[at : at + 1] == b'"' else "bad label")
    return _unescape(quoted[1]), quoted.end()


def _unescape(text: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: _UNESCAPED[match[1]], text) if b"\\" in text else text


def _skip(line: bytes, at: int) -> int:
    match = _BLANKS.match(line, at)
    return match.end() if match is not None else at


def _word(text: bytes) -> tuple[bytes, bytes]:
    """What stands before the first blank, and what follows the blanks after it."""
    blank = _BLANK.search(text)
    return (text[: blank.start()], text[blank.end() :]) if blank is not None else (text, b"")


def _number(text: bytes) -> float | None:
    if _NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    return None if math.isinf(value) and text[-1:].isdigit() else value


def _seconds(text: bytes, *, openmetrics: bool) -> float | None:
    """A timestamp: OpenMetrics writes seconds, the older text whole milliseconds.

    A point in a page without `# EOF` can only be OpenMetrics cut short: seconds as well.
    """
    if openmetrics or _DECIMAL.fullmatch(text) is not None:
        seconds = _number(text)
        return seconds if seconds is not None and math.isfinite(seconds) else None
    # Nineteen digits and a sign hold every int64; more would also cost int() quadratic time.
    if _INTEGER.fullmatch(text) is None or len(text.lstrip(b"+-").lstrip(b"0")) > 19:  # noqa: PLR2004
        return None
    milliseconds = int(text.lstrip(b"+-").lstrip(b"0") or b"0") * (-1 if text.startswith(b"-") else 1)
    return milliseconds / 1000 if -_INT64 <= milliseconds < _INT64 else None


def _shown(text: bytes) -> str:
    """Text from a page as a person may see it: short, and nothing that a terminal would obey."""
    shown = "".join(c if c.isprintable() else "\ufffd" for c in text[: 4 * _QUOTED_TEXT].decode(errors="replace"))
    return shown if len(shown) <= _QUOTED_TEXT else shown[: _QUOTED_TEXT - 1] + "…"
