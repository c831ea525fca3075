r"""Pages without numba: `parse` for one page, `PlainScanner` for the pages of one target.

This is the twin the numba scanner is tested against, and what runs where numba is not wanted (`tidegate export`, the
command line). `PlainScanner` remembers heads (name and labels, as bytes) it has read, so a repeated page costs a
dictionary look-up and a `float` per line.

Worked example: `parse(b'up{job="a"} 1\\noops\n')` is a page with one series, and its `dropped` is
`(Dropped(2, "no value"),)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isnan
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from exporter.model import Dropped

from .line import LineError, family_of, is_openmetrics, read_line, read_series, read_tail, read_type
from .page import MAX_DROPPED, Layout, Page, Parsed, Rest
from .selection import Selection, names_shown

Identity = tuple[str, frozenset[tuple[str, str]]]


class _Faults(NamedTuple):
    """Counts what is dropped or doubtful in a response, with the names and meanings that `Page` has."""

    dropped: list[Dropped]
    dropped_total: int
    broken: frozenset[str]
    conflicts: list[int]


def identity(parsed: Parsed) -> Identity:
    """What makes two series the same: the name and the labels, in any order."""
    return parsed[0], frozenset(parsed[1].items())


def parse(body: bytes) -> Page:
    """One page, on its own."""
    return PlainScanner().scan(body)


class PlainScanner:
    """Reads the pages of one target, one after the other. `selection`: which metrics; None is all."""

    def __init__(self, selection: Selection | None = None) -> None:
        self._selection = selection
        self._layout = Layout([], np.empty(0, np.int32), MappingProxyType({}), {})
        self._known: dict[bytes, tuple[Parsed, Identity]] = {}

    def scan(self, body: bytes) -> Page:
        openmetrics = is_openmetrics(body)
        selected = self._selection.lines(body) if self._selection is not None else None
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
        known: dict[bytes, tuple[Parsed, Identity]] = {}
        places: dict[Identity, int] = {}
        for number, ended in lines:
            line = ended.removesuffix(b"\r")
            text = line.lstrip(b" \t")
            if not text or text.startswith(b"#"):
                _note_type(text, types)
                continue
            try:
                head, value, at = self._read(line, openmetrics=openmetrics)
                known[head] = entry = self._known.get(head) or known.get(head) or _entry(head)
            except LineError as bad:
                dropped_total, bad_total = dropped_total + 1, bad_total + 1
                if dropped_total <= MAX_DROPPED:
                    dropped.append(Dropped(number, bad.args[0]))
                if bad_total <= MAX_DROPPED:
                    broken.add(family_of(line))
                continue
            place = places.setdefault(entry[1], len(heads))
            if place < len(heads):
                dropped_total += 1
                if dropped_total <= MAX_DROPPED:
                    dropped.append(Dropped(number, "duplicate series"))
                first, first_at, first_line = numbers[place]
                if not (first == value or (isnan(first) and isnan(value))):
                    # Two processes that print the same series have at least the work of the busier one.
                    numbers[place] = (float(np.fmax(first, value)), first_at, int(first_line))
                    conflicts.add(place)
                continue
            heads.append(head)
            numbers.append((value, at, number))
        self._known = known
        broken = broken - {""} | ({""} if bad_total > MAX_DROPPED else set())
        faults = _Faults(dropped, dropped_total, frozenset(broken), sorted(conflicts))
        rest = None if selected is None else Rest(selected.signs, () if heads else names_shown(body))
        return self._page(heads, numbers, types, faults, rest)

    def _read(self, line: bytes, *, openmetrics: bool) -> tuple[bytes, float, float]:
        # A head read before is a head wherever a line begins with it, because the grammar reads from left to right.
        # So cutting at the last brace is only a guess where to look; an exemplar's brace just misses the dictionary.
        end = line.rfind(b"}") + 1
        if end and line[:end] in self._known:
            return line[:end], *read_tail(line[end:], openmetrics=openmetrics)
        end, value, at = read_line(line, openmetrics=openmetrics)
        return line[:end], value, at

    def _page(
        self,
        heads: list[bytes],
        numbers: list[tuple[float, float, int]],
        types: Mapping[str, str],
        faults: _Faults,
        rest: Rest | None,
    ) -> Page:
        columns = np.array(numbers, np.float64).reshape(-1, 3).T.copy()
        lines = columns[2].astype(np.int32)
        if not self._layout.has(heads, types, rest):
            known = {head: parsed for head, (parsed, _) in self._known.items()}
            self._layout = Layout(heads, lines, MappingProxyType(types), known, rest)
        dropped, dropped_total, broken, conflicts = faults
        return Page(
            self._layout, columns[0], columns[1], lines, tuple(dropped), dropped_total, broken, tuple(conflicts)
        )


def _entry(head: bytes) -> tuple[Parsed, Identity]:
    parsed = read_series(head)
    return parsed, identity(parsed)


def _note_type(comment: bytes, types: dict[str, str]) -> None:
    found = read_type(comment) if b"TYPE" in comment else None
    if found is not None:
        types.setdefault(*found)
