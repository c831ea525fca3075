r"""Parses the responses of one target with numba. `Scanner` remembers the last response.

A response of the same series costs one pass of a kernel that compares bytes and reads numbers, off the GIL. A response
that gained, lost or moved lines is surveyed: a second kernel reads what is new, and the plain reader decides what the
kernel leaves open (a rare number, a line that looks bad). Duplicates, broken UTF-8 and reasons are found in Python.
Labels are not parsed until a caller reads them.

Worked example: `scanner.scan(b"up 1\n").layout is scanner.scan(b"up 2\n").layout`, and the second value is 2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.budget import Budget
from exporter.model import Dropped, Floats

from . import kernel
from .parser import (
    MAX_DROPPED,
    Identity,
    Ints,
    Layout,
    LineError,
    Page,
    Rest,
    TooManySeries,
    family_of,
    identity,
    is_openmetrics,
    is_utf8,
    names_shown,
    read_line,
    read_series,
    read_tail,
    read_type,
)
from .selection import EVERYTHING, MAX_SIGN_NAMES, Selected, Selection


class _Lines(NamedTuple):
    """The lines that the kernel found, one entry each. `stop` is the end of the head of a sample, else of the line."""

    start: Ints
    stop: Ints
    kind: NDArray[np.uint8]
    hash: NDArray[np.uint64]
    value: Floats
    at: Floats


@dataclass(frozen=True, slots=True)
class _Memory:
    """The last response that was surveyed.

    body:    its selected lines; `lines` describes these.
    numbers: number of each line in the response, from 1.
    signs:   whether the response has a name with each sign.
    """

    body: bytes
    openmetrics: bool
    lines: _Lines
    numbers: Ints
    signs: NDArray[np.uint8]
    page: Page


def _lines(count: int) -> _Lines:
    return _Lines(
        start=np.empty(count, np.int32),
        stop=np.empty(count, np.int32),
        kind=np.empty(count, np.uint8),
        hash=np.empty(count, np.uint64),
        value=np.empty(count, np.float64),
        at=np.empty(count, np.float64),
    )


def _empty_memory() -> _Memory:
    layout = Layout([], MappingProxyType({}), {})
    page = Page(layout, np.empty(0), np.empty(0), np.empty(0, np.int32), (), 0)
    return _Memory(b"", False, _lines(0), np.empty(0, np.int32), np.empty(0, np.uint8), page)


class Scanner:
    """Parses the responses of one target, one after the other. Not for two threads at once."""

    def __init__(
        self,
        selection: Selection | None = None,
        budget: Budget | None = None,
        ranges: Callable[[], Floats] | None = None,
    ) -> None:
        """selection: the metrics that are read; None is all. budget: of the lines that all scanners remember.

        ranges: of the buckets that are read now, as `Selection.everything`, which is the default.
        """
        self._selection = selection
        everything = np.empty(0) if selection is None else selection.everything
        self._ranges = ranges or (lambda: everything)
        self._tables = EVERYTHING if selection is None else selection.tables
        self._share = None if budget is None else budget.share()
        self._memory = _empty_memory()

    def scan(self, body: bytes) -> Page:
        """Raises TooManySeries."""
        openmetrics = is_openmetrics(body)
        # Across a change of format no line is recognized: the same timestamp means another time.
        memory = self._memory if self._memory.openmetrics == openmetrics else None
        # Only a survey compares repeated series, because `follow` does not keep their numbers.
        repeats = memory is not None and bool((memory.lines.kind == kernel.DUPLICATE).any())
        page = self._follow(body, memory) if memory is not None and not repeats else None
        return page or self._survey(body, memory or _empty_memory(), openmetrics=openmetrics)

    def _follow(self, body: bytes, memory: _Memory) -> Page | None:
        """The response; None if its selected lines differ from the remembered ones in more than their numbers."""
        lines, page = memory.lines, memory.page
        count = len(page.layout)
        if self._selection is not None and not count:
            return None  # a response without a selected series is surveyed each time: it may not be metrics at all
        value, at, slow = np.empty(count), np.empty(count), np.empty((count, 3), np.int32)
        numbers = np.empty(count, np.int32)
        hard = kernel.follow(
            *(_array(body), memory.openmetrics),
            *(_array(memory.body), lines.start, lines.stop, lines.kind, memory.numbers),
            *(*self._tables, self._ranges(), memory.signs),
            *(value, at, numbers, slow),
        )
        if hard == kernel.DEVIATED:
            return None
        for series, start, stop in slow[:hard].tolist():
            try:
                value[series], at[series] = read_tail(_text(body, start, stop), openmetrics=memory.openmetrics)
            except LineError:
                return None
        return Page(page.layout, value, at, numbers, page.dropped, page.dropped_total, page.broken)

    def _select(self, body: bytes, selection: Selection) -> Selected:
        """The selected lines. Raises TooManySeries."""
        counts = np.zeros(len(selection.signs), np.int64)
        names = np.zeros(1 << (2 * MAX_SIGN_NAMES * len(counts)).bit_length(), np.uint64)
        into, numbers = np.empty(0, np.uint8), np.empty(0, np.int32)
        tables = (*self._tables, self._ranges())
        kept, size = kernel.select(_array(body), *tables, counts, names, MAX_SIGN_NAMES, into, numbers)
        if self._share is not None and not self._share.resize(kept):
            raise TooManySeries(f"{kept} lines of metrics that are read: more than one target may have in memory now")
        if kept:
            into, numbers = np.empty(size, np.uint8), np.empty(kept, np.int32)
            kernel.select(_array(body), *tables, counts, names, MAX_SIGN_NAMES, into, numbers)
        signs = {sign: count for sign, count in zip(selection.signs, counts.tolist(), strict=True) if count}
        return Selected(into.tobytes(), numbers, MappingProxyType(signs))

    def _survey(self, response: bytes, memory: _Memory, *, openmetrics: bool) -> Page:
        selection = self._selection
        selected = None if selection is None else self._select(response, selection)
        body = response if selected is None else selected.body
        lines = _survey(body, memory, openmetrics=openmetrics)
        _decide_open_lines(body, lines, openmetrics=openmetrics)
        heads, conflicts = _mark_invalid(body, lines)
        rows = np.flatnonzero(lines.kind == kernel.SAMPLE)
        every_number = np.arange(1, len(lines.kind) + 1, dtype=np.int32) if selected is None else selected.numbers
        numbers = every_number[rows]
        types = _types(body, lines)
        signs, rest = np.empty(0, np.uint8), None
        if selected is not None and selection is not None:
            signs = np.array([sign in selected.signs for sign in selection.signs], np.uint8)
            rest = Rest(selected.signs, () if heads else names_shown(response))
        layout = self._memory.page.layout
        if not layout.has(heads, types, rest):
            layout = Layout(heads, types, layout.parsed, rest)
        dropped_rows = np.flatnonzero(_is_dropped(lines.kind))
        dropped = tuple(
            drop._replace(line=int(every_number[drop.line - 1]))
            for drop in _dropped(body, lines, dropped_rows[:MAX_DROPPED], openmetrics=openmetrics)
        )
        found = Page(
            layout,
            lines.value[rows],
            lines.at[rows],
            numbers,
            dropped,
            len(dropped_rows),
            _broken(body, lines),
            tuple(np.searchsorted(rows, conflicts).tolist()),
        )
        self._memory = _Memory(body, openmetrics, lines, every_number, signs, found)
        return found


def _array(body: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(body, np.uint8)


def _survey(body: bytes, memory: _Memory, *, openmetrics: bool) -> _Lines:
    columns = _lines(body.count(b"\n") + 1)
    old, text = memory.lines, _array(body)
    count = kernel.survey(
        *(text, _array(memory.body), old.start, old.stop, old.kind, old.hash),
        *(columns.start, columns.stop, columns.kind, columns.hash),
    )
    lines = _Lines(*(column[:count] for column in columns))  # type: ignore[arg-type] # mypy joins the columns' types
    kernel.measure(text, openmetrics, lines.stop, lines.kind, lines.value, lines.at)
    return lines


def _text(body: bytes, start: int, stop: int) -> bytes:
    """A line, or the rest of one, without its carriage return."""
    return body[start:stop].removesuffix(b"\r")


def _line_end(body: bytes, start: int) -> int:
    end = body.find(b"\n", start)
    return end if end >= 0 else len(body)


def _decide_open_lines(body: bytes, lines: _Lines, *, openmetrics: bool) -> None:
    """Decides the lines that the kernel left open: each becomes SAMPLE or BAD."""
    for row in np.flatnonzero((lines.kind == kernel.SLOW) | (lines.kind == kernel.UNDECIDED)).tolist():
        start = int(lines.start[row])
        end = _line_end(body, start)
        try:
            length, value, at = read_line(_text(body, start, end), openmetrics=openmetrics)
        except LineError:
            lines.kind[row], lines.stop[row], lines.hash[row] = kernel.BAD, end, 0
        else:
            lines.kind[row], lines.stop[row] = kernel.SAMPLE, start + length
            lines.value[row], lines.at[row] = value, at


def _mark_invalid(body: bytes, lines: _Lines) -> tuple[list[bytes], list[int]]:
    """Marks lines with broken UTF-8 and repeated series.

    Returns the heads of what is left, and the lines of series with repeats of another value. Of those the largest
    value is kept: two processes that expose the same series have at least the work of the busier one.
    """
    rows = np.flatnonzero(lines.kind == kernel.SAMPLE)
    spans = zip(lines.start[rows].tolist(), lines.stop[rows].tolist(), strict=True)
    heads = [body[start:stop] for start, stop in spans]
    faults = {}
    if not (body.isascii() or is_utf8(body)):
        faults = {i: kernel.NOT_UTF8 for i, head in enumerate(heads) if not is_utf8(head)}
    conflicts: set[int] = set()
    for i, first in _repeats(heads, lines.hash[rows], faults).items():
        faults[i] = kernel.DUPLICATE
        one, other = lines.value[rows[first]], lines.value[rows[i]]
        if not (one == other or (np.isnan(one) and np.isnan(other))):
            lines.value[rows[first]] = np.fmax(one, other)
            conflicts.add(int(rows[first]))
    for i, kind in faults.items():
        lines.kind[rows[i]] = kind
        if kind == kernel.NOT_UTF8:
            lines.stop[rows[i]] = _line_end(body, int(lines.start[rows[i]]))
    kept = [head for i, head in enumerate(heads) if i not in faults] if faults else heads
    return kept, sorted(conflicts)


def _repeats(heads: list[bytes], hashes: NDArray[np.uint64], faults: Mapping[int, int]) -> dict[int, int]:
    """Each head that names the series of an earlier head, with that head. Compares only heads of equal hashes."""
    order = np.argsort(hashes, kind="stable")
    equal = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    suspects = sorted({*order[equal].tolist(), *order[equal + 1].tolist()})
    firsts: dict[Identity, int] = {}
    identities: dict[bytes, Identity] = {}
    repeats = {}
    for i in suspects:
        if i in faults:
            continue
        head = heads[i]
        if head not in identities:
            identities[head] = identity(read_series(head))
        first = firsts.setdefault(identities[head], i)
        if first != i:
            repeats[i] = first
    return repeats


def _types(body: bytes, lines: _Lines) -> Mapping[str, str]:
    types: dict[str, str] = {}
    for row in np.flatnonzero(lines.kind == kernel.TYPE).tolist():
        found = read_type(body[lines.start[row] : lines.stop[row]])
        if found is not None:
            types.setdefault(*found)
    return MappingProxyType(types)


def _is_dropped(kind: NDArray[np.uint8]) -> NDArray[np.bool_]:
    dropped_rows: NDArray[np.bool_] = (kind == kernel.DUPLICATE) | (kind == kernel.BAD) | (kind == kernel.NOT_UTF8)
    return dropped_rows


def _broken(body: bytes, lines: _Lines) -> frozenset[str]:
    """The families of the lines that did not parse, as `Page.broken` has them."""
    rows = np.flatnonzero((lines.kind == kernel.BAD) | (lines.kind == kernel.NOT_UTF8))
    names = {family_of(body[lines.start[row] : lines.stop[row]]) for row in rows[:MAX_DROPPED].tolist()} - {""}
    return frozenset(names | {""}) if len(rows) > MAX_DROPPED else frozenset(names)


def _dropped(body: bytes, lines: _Lines, rows: NDArray[np.intp], *, openmetrics: bool) -> Iterator[Dropped]:
    for row in rows.tolist():
        if lines.kind[row] == kernel.DUPLICATE:
            yield Dropped(row + 1, "duplicate series")
            continue
        try:
            read_line(_text(body, lines.start[row], lines.stop[row]), openmetrics=openmetrics)
        except LineError as bad:
            yield Dropped(row + 1, bad.args[0])
