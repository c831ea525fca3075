r"""Parses Prometheus text 0.0.4 and OpenMetrics 1.0 in plain Python: lines, then the responses of one target.

This is the reference that the numba scanner is tested against: where the two could differ, this is right. It also runs
where numba is not wanted (`tidegate export`, the command line). `PlainScanner` remembers the heads (name and labels, as
bytes) that it has read, so a repeated response costs a dictionary look-up and a `float` per line.

Accepted beyond the letter of the format, because exporters write it: blanks around names, `=` and `,`; a comma after
the last label; a backslash that escapes nothing (kept). An exemplar, from ` #` on, is not read. Numbers are those that
Prometheus accepts (Go's ParseFloat without its newer forms): decimal, `inf` and `infinity` with an optional sign, `nan`
without one, in any case. So no `1_0`, no hexadecimal, and nothing that overflows: an infinity that was not written is
an invented number.

Worked example: `parse(b'up{job="a"} 1\noops\n')` has one series with value 1.0, on line 1, without a timestamp (NaN),
and `dropped == (Dropped(2, "no value"),)`. `read_line(b'up{job="a"} 1 1700000000000', openmetrics=False)` is
`(11, 1.0, 1700000000.0)`: the head is the first 11 bytes.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.model import Dropped, Floats

from .selection import Selection

MAX_DROPPED = 1000  # dropped lines that a Page names; more are only counted: a bad response must stay small in memory
# Where a response without a selected line is searched for names to show, and how many are shown.
SHOWN_BYTES, SHOWN_NAMES = 1 << 14, 3

# Possessive quantifiers (`*+`) throughout: input is untrusted, and a match that never backtracks is linear.
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

_QUOTED_TEXT = 40  # characters of a bad value in a reason
_INT64 = 2**63
_UNESCAPED = {b"\\": b"\\", b'"': b'"', b"n": b"\n"}

_PAIR = rb'([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
# A head without quoted names, in one match. The functions below find the same, and why other heads are invalid.
_COMMON = re.compile(
    rb"[ \t]*+([a-zA-Z_:][a-zA-Z0-9_:]*+)[ \t]*+\{[ \t]*+(?:" + _PAIR + rb"[ \t]*+(?:,[ \t]*+|(?=\})))*+\}", re.DOTALL
)
_PAIRS = re.compile(_PAIR, re.DOTALL)

Ints: TypeAlias = NDArray[np.int32]
Labels: TypeAlias = Mapping[str, str]
Parsed: TypeAlias = tuple[str, Labels]
Identity: TypeAlias = tuple[str, frozenset[tuple[str, str]]]


class LineError(ValueError):
    """The line is not a valid sample. `args[0]` is the reason, as in `Dropped`."""


class TooManySeries(ValueError):  # noqa: N818 - it names the reason
    """The response has more lines of selected metrics than its target may have in memory."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Describes the lines of a response that a selection leaves out.

    signs: sign -> number of distinct names that begin with it, selected or not.
    names: if no series is selected, a few names of series in the response; else empty.
    """

    signs: Mapping[str, int]
    names: tuple[str, ...]


class Layout:
    """Holds the series of a response in their order. As long as a target's series stay the same, so does the object.

    Parsed as late as possible: a response may have 60,000 series of which ten matter. So names are cut out on first
    use, and labels are parsed for the series that a caller reads.

    types:  family -> "gauge", "counter" … from the `# TYPE` lines; the first one of a family counts.
    rest:   the lines that the scanner's selection leaves out; None if it selects all.
    """

    def __init__(
        self,
        heads: list[bytes],
        types: Mapping[str, str],
        earlier: Mapping[bytes, Labels],
        rest: Rest | None = None,
    ) -> None:
        """earlier: labels parsed for an earlier layout of the same target, so that one new pod costs one parse."""
        self.types = types
        self.heads = heads
        self.rest = rest
        self.parsed: dict[bytes, Labels] = {}  # by how they are written: a GPU's 30 series have the same labels
        # Only what this layout has too: else the labels of two generations would stay in memory.
        here = {written_labels(head) for head in heads} if earlier else set()
        self._earlier: Mapping[bytes, Labels] = {written: earlier[written] for written in here & earlier.keys()}

    def __len__(self) -> int:
        return len(self.heads)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each series. Parses no labels."""
        return tuple(self._name(head) for head in self.heads)

    def select(self, wanted: Container[str]) -> list[int]:
        """The indices of the series with a name in `wanted`."""
        return [index for index, name in enumerate(self.names) if name in wanted]

    def read(self, index: int) -> Parsed:
        """Name and labels of one series."""
        return self.names[index], self.labels(index)

    def labels(self, index: int) -> Labels:
        """The labels of one series: unescaped values, in the order of the response."""
        head = self.heads[index]
        written = written_labels(head)
        if written not in self.parsed:
            earlier = self._earlier.get(written)
            self.parsed[written] = earlier if earlier is not None else read_series(head)[1]
        return self.parsed[written]

    def labels_once(self, index: int) -> Labels:
        """As `labels`, without keeping them: those of the buckets of a vLLM take 20 to 40 KB."""
        head = self.heads[index]
        written = written_labels(head)
        return self.parsed.get(written) or self._earlier.get(written) or read_series(head)[1]

    def carries(self, family: str, pairs: Sequence[bytes], at_most: int) -> tuple[bool, int]:
        """Whether a series of another family has all of these labels, each written as `name="value"`.

        Checks `at_most` series; if more may have the labels, the result is True. Returns it, and how many it checked.
        """
        name, rarest, text = family.encode(), max(pairs, key=len), self._text
        found, checked = text.find(rarest), 0
        while found >= 0:
            start, stop = text.rfind(b"\n", 0, found) + 1, text.find(b"\n", found)
            head = text[start : stop if stop >= 0 else len(text)]
            checked += 1
            if checked > at_most or (all(pair in head for pair in pairs) and self._bare(head) != name):
                return True, checked
            found = text.find(rarest, stop) if stop >= 0 else -1
        return False, checked

    @cached_property
    def _text(self) -> bytes:
        return b"\n".join(self.heads)

    def has(self, heads: list[bytes], types: Mapping[str, str], rest: Rest | None = None) -> bool:
        """Whether a response with these heads, types and rest has this layout."""
        return self.heads == heads and self.types == types and self.rest == rest

    @staticmethod
    def _bare(head: bytes) -> bytes:
        return head.partition(b"{")[0].strip(b" \t")

    @classmethod
    def _name(cls, head: bytes) -> str:
        bare = cls._bare(head)
        # The series of a family, and all targets of a kind, share one string.
        return sys.intern(bare.decode() if bare else read_series(head)[0])


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """One response, parsed.

    values:        shape (len(layout),); NaN where the response has NaN.
    at:            shape (len(layout),), POSIX seconds of each line's timestamp; NaN if it has none.
    lines:         shape (len(layout),), number of each series' line in this response, from 1.
    dropped:       the invalid lines, the first `MAX_DROPPED` of them; `dropped_total` counts all.
    broken:        names of the families of which a line did not parse, as far as the name can be read. Contains "" if
                   more than `MAX_DROPPED` lines were dropped: any family may have lost one.
    conflicts:     indices of series that the response has twice with different values; `values` has the largest.
    """

    layout: Layout
    values: Floats
    at: Floats
    lines: Ints
    dropped: tuple[Dropped, ...]
    dropped_total: int
    broken: frozenset[str] = frozenset()
    conflicts: tuple[int, ...] = ()


def identity(parsed: Parsed) -> Identity:
    """The identity of a series: its name and its labels, in any order."""
    return parsed[0], frozenset(parsed[1].items())


def parse(body: bytes) -> Page:
    """Parses one response."""
    return PlainScanner().scan(body)


class PlainScanner:
    """Parses the responses of one target, one after the other. The arguments are those of `Scanner`."""

    def __init__(self, selection: Selection | None = None, ranges: Callable[[], Floats] | None = None) -> None:
        self._selection, self._ranges = selection, ranges
        self._layout = Layout([], MappingProxyType({}), {})
        self._entries: dict[bytes, tuple[Parsed, Identity]] = {}

    def scan(self, body: bytes) -> Page:
        openmetrics = is_openmetrics(body)
        ranges = None if self._ranges is None else self._ranges()
        selected = self._selection.lines(body, ranges) if self._selection is not None else None
        lines: Iterable[tuple[int, bytes]] = enumerate(body.split(b"\n"), 1)
        if selected is not None:
            lines = zip(selected.numbers.tolist(), selected.body.split(b"\n"), strict=False)
        types: dict[str, str] = {}
        heads: list[bytes] = []
        numbers: list[tuple[float, float, int]] = []
        dropped: list[Dropped] = []
        dropped_total = bad_total = 0
        broken: set[str] = set()
        conflicts: set[int] = set()
        entries: dict[bytes, tuple[Parsed, Identity]] = {}
        positions: dict[Identity, int] = {}
        for number, ended in lines:
            line = ended.removesuffix(b"\r")
            text = line.lstrip(b" \t")
            if not text or text.startswith(b"#"):
                _add_type(text, types)
                continue
            try:
                head, value, at = self._read(line, openmetrics=openmetrics)
                entries[head] = entry = self._entries.get(head) or entries.get(head) or _entry(head)
            except LineError as bad:
                dropped_total, bad_total = dropped_total + 1, bad_total + 1
                if dropped_total <= MAX_DROPPED:
                    dropped.append(Dropped(number, bad.args[0]))
                if bad_total <= MAX_DROPPED:
                    broken.add(family_of(line))
                continue
            position = positions.setdefault(entry[1], len(heads))
            if position < len(heads):
                dropped_total += 1
                if dropped_total <= MAX_DROPPED:
                    dropped.append(Dropped(number, "duplicate series"))
                first, first_at, first_line = numbers[position]
                if not (first == value or (math.isnan(first) and math.isnan(value))):
                    # Two processes that expose the same series have at least the work of the busier one.
                    numbers[position] = (float(np.fmax(first, value)), first_at, int(first_line))
                    conflicts.add(position)
                continue
            heads.append(head)
            numbers.append((value, at, number))
        self._entries = entries
        broken = broken - {""} | ({""} if bad_total > MAX_DROPPED else set())
        rest = None if selected is None else Rest(selected.signs, () if heads else names_shown(body))
        columns = np.array(numbers, np.float64).reshape(-1, 3).T.copy()
        if not self._layout.has(heads, types, rest):
            earlier = {written_labels(head): labels for head, ((_, labels), _) in entries.items()}
            self._layout = Layout(heads, MappingProxyType(types), earlier, rest)
        return Page(
            self._layout,
            values=columns[0],
            at=columns[1],
            lines=columns[2].astype(np.int32),
            dropped=tuple(dropped),
            dropped_total=dropped_total,
            broken=frozenset(broken),
            conflicts=tuple(sorted(conflicts)),
        )

    def _read(self, line: bytes, *, openmetrics: bool) -> tuple[bytes, float, float]:
        # A head read before is a head wherever a line begins with it, because the grammar reads from left to right.
        # So the last brace is only a guess where to cut; with an exemplar's brace the dictionary has no entry.
        end = line.rfind(b"}") + 1
        if end and line[:end] in self._entries:
            return line[:end], *read_tail(line[end:], openmetrics=openmetrics)
        end, value, at = read_line(line, openmetrics=openmetrics)
        return line[:end], value, at


def is_openmetrics(body: bytes) -> bool:
    """Whether the last line is `# EOF`, which OpenMetrics requires and no other format writes."""
    last = body[-64:].rstrip(b" \t\r\n")
    return last.endswith(b"\n# EOF") or (last == b"# EOF" and len(body) <= 64)  # noqa: PLR2004 - the slice above


def read_line(line: bytes, *, openmetrics: bool) -> tuple[int, float, float]:
    """Where the head ends, the value, and the timestamp in POSIX seconds (NaN if the line has none).

    line: without its line feed and the one carriage return that may precede it. Raises LineError.
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


def written_labels(head: bytes) -> bytes:
    """The part of a head that its labels are read from: where it is the same, the labels are."""
    name, _, written = head.partition(b"{")
    return written if name.strip(b" \t") else head  # Prometheus 3 writes a quoted name among the labels


def read_series(head: bytes) -> Parsed:
    """Name and labels of a head that `read_line` accepted."""
    name, labels, _ = _read_head(head)
    return name.decode(), MappingProxyType({key.decode(): value.decode() for key, value in labels.items()})


def family_of(line: bytes) -> str:
    """The family name that a line begins with, whether or not the line parses; "" if it begins with none."""
    match = _FAMILY.match(line)
    return "" if match is None else (match[1] or match[2]).decode(errors="replace")


def read_tail(tail: bytes, *, openmetrics: bool) -> tuple[float, float]:
    """Value and timestamp (POSIX seconds, NaN if there is none) from what follows the head. Raises LineError."""
    tail = tail.strip(b" \t")
    value_text, rest = _word(tail)
    if not value_text or value_text.startswith(b"#"):
        raise LineError("no value")
    value = _number(value_text)
    if value is None:
        raise LineError(f"bad value: {_printable(tail)}")
    at_text, exemplar = _word(rest)
    if not at_text or at_text.startswith(b"#"):
        return value, math.nan
    at = _seconds(at_text, openmetrics=openmetrics)
    if at is None or (exemplar and not exemplar.startswith(b"#")):
        raise LineError(f"bad timestamp: {_printable(rest)}")
    return value, at


def read_type(line: bytes) -> tuple[str, str] | None:
    """Family and type from a `# TYPE` line; None if the line is incomplete."""
    match = _TYPE.fullmatch(line)
    if match is None or not is_utf8(match[1]):
        return None
    return _unescape(match[1].strip(b'"')).decode(), match[2].decode()


def names_shown(body: bytes) -> tuple[str, ...]:
    """The first names of valid series in the first `SHOWN_BYTES` of a response, at most `SHOWN_NAMES` of them."""
    lines = body[:SHOWN_BYTES].split(b"\n")
    if len(body) > SHOWN_BYTES:
        lines.pop()  # it is cut
    names: dict[str, None] = {}
    for ended in lines:
        line = ended.removesuffix(b"\r")
        if line.lstrip(b" \t")[:1] in (b"", b"#"):
            continue
        try:
            end, _, _ = read_line(line, openmetrics=False)
        except LineError:
            continue
        names[read_series(line[:end])[0]] = None
        if len(names) == SHOWN_NAMES:
            break
    return tuple(names)


class _Head(NamedTuple):
    name: bytes
    labels: dict[bytes, bytes]  # unescaped
    end: int  # where name and labels end in the line


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
    """(a label's name or, if quoted, perhaps the metric's; the next byte that is no blank; whether it is quoted)."""
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
    """(the text before the first blank, the text after the blanks)."""
    blank = _BLANK.search(text)
    return (text[: blank.start()], text[blank.end() :]) if blank is not None else (text, b"")


def _number(text: bytes) -> float | None:
    if _NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    return None if math.isinf(value) and text[-1:].isdigit() else value


def _seconds(text: bytes, *, openmetrics: bool) -> float | None:
    """A timestamp in POSIX seconds: OpenMetrics has seconds, the older text format whole milliseconds.

    A decimal point in a response without `# EOF` can only be OpenMetrics cut short: seconds as well.
    """
    if openmetrics or _DECIMAL.fullmatch(text) is not None:
        seconds = _number(text)
        return seconds if seconds is not None and math.isfinite(seconds) else None
    # Nineteen digits and a sign hold every int64; more would also cost int() quadratic time.
    if _INTEGER.fullmatch(text) is None or len(text.lstrip(b"+-").lstrip(b"0")) > 19:  # noqa: PLR2004
        return None
    milliseconds = int(text.lstrip(b"+-").lstrip(b"0") or b"0") * (-1 if text.startswith(b"-") else 1)
    return milliseconds / 1000 if -_INT64 <= milliseconds < _INT64 else None


def _printable(text: bytes) -> str:
    """Untrusted text for a message: short, without control characters."""
    shown = "".join(c if c.isprintable() else "\ufffd" for c in text[: 4 * _QUOTED_TEXT].decode(errors="replace"))
    return shown if len(shown) <= _QUOTED_TEXT else shown[: _QUOTED_TEXT - 1] + "…"


def _entry(head: bytes) -> tuple[Parsed, Identity]:
    parsed = read_series(head)
    return parsed, identity(parsed)


def _add_type(comment: bytes, types: dict[str, str]) -> None:
    found = read_type(comment) if b"TYPE" in comment else None
    if found is not None:
        types.setdefault(*found)
