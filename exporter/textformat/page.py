"""What a page says: its series, and a value and a time for each.

A `Layout` is the series of a page in their order. It is parsed as late as possible: a page may have 60,000 series of
which ten matter, so names are cut out on first use and labels are read for the series somebody looks at.
Nothing here knows the format's grammar beyond where a name ends, nor what any name means.

Worked example: for the page `up{job="a"} 1`, `page.layout.names` is `("up",)`, `page.layout.series[0].labels["job"]`
is `"a"`, `page.values[0]` is 1.0, `page.lines[0]` is 1, and `page.at[0]` is NaN, because the line has no timestamp.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from exporter.model import Dropped, Floats

from .line import read_series

MAX_DROPPED = 1000  # dropped lines a page names; more are only counted: a page of garbage must stay small in memory

Ints: TypeAlias = NDArray[np.int32]
Parsed: TypeAlias = tuple[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Series:
    """One series as the page writes it.

    labels: unescaped values, in the page's order.
    line:   number of its line, from 1, on the page where this layout was first seen.
    """

    name: str
    labels: Mapping[str, str]
    line: int


class TooManySeries(ValueError):  # noqa: N818 - it names the reason
    """The response has more lines of selected metrics than its target may have in memory."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What is known of a page beyond its selected series.

    signs: sign -> number of distinct names that begin with it, selected or not.
    names: if no series is selected, a few names of series that the page has; else empty.
    """

    signs: Mapping[str, int]
    names: tuple[str, ...]


class Layout:
    """The series of a page in their order; the same object comes back as long as a target's series stay the same.

    series: one per value; each is parsed when it is first looked at.
    types:  family -> "gauge", "counter" … as far as the page has `# TYPE` lines; the first one counts.
    rest:   what is known of the lines that the scanner's selection leaves out; None if it selects all.
    """

    def __init__(
        self,
        heads: list[bytes],
        lines: Ints,
        types: Mapping[str, str],
        known: Mapping[bytes, Parsed],
        rest: Rest | None = None,
    ) -> None:
        """`known`: heads parsed for an earlier layout of the same target, so that one new pod costs one parse."""
        self.types = types
        self.heads = heads
        self.rest = rest
        self.parsed: dict[bytes, Parsed] = {}
        self.series: Sequence[Series] = _LazySeries(self, lines)
        # Only what this layout has too: else the labels of two generations would stay in memory.
        here: AbstractSet[bytes] = frozenset(heads) if known else frozenset()
        self._known: Mapping[bytes, Parsed] = {head: parsed for head, parsed in known.items() if head in here}

    def __len__(self) -> int:
        return len(self.heads)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each series. No labels are read for it."""
        return tuple(self._name(head) for head in self.heads)

    def select(self, wanted: Container[str]) -> list[int]:
        """The indices of the series whose name is in `wanted`."""
        return [index for index, name in enumerate(self.names) if name in wanted]

    def read(self, index: int) -> Parsed:
        """Name and labels of one series."""
        head = self.heads[index]
        if head not in self.parsed:
            known = self._known.get(head)
            self.parsed[head] = known if known is not None else read_series(head)
        return self.parsed[head]

    def carries(self, family: str, pairs: Sequence[bytes], at_most: int) -> tuple[bool, int]:
        """Whether a series of another family has all of these labels, each written as `name="value"`.

        at_most: series that are looked at; if there are more that may have them, the answer is True.
        Returns it, and how many series were looked at.
        """
        name, rarest, text = family.encode(), max(pairs, key=len), self._text
        found, looked = text.find(rarest), 0
        while found >= 0:
            start, stop = text.rfind(b"\n", 0, found) + 1, text.find(b"\n", found)
            head = text[start : stop if stop >= 0 else len(text)]
            looked += 1
            if looked > at_most or (all(pair in head for pair in pairs) and self._bare(head) != name):
                return True, looked
            found = text.find(rarest, stop) if stop >= 0 else -1
        return False, looked

    @cached_property
    def _text(self) -> bytes:
        return b"\n".join(self.heads)

    def has(self, heads: list[bytes], types: Mapping[str, str], rest: Rest | None = None) -> bool:
        """Whether a page with these heads and types, and this rest, has this layout."""
        return self.heads == heads and self.types == types and self.rest == rest

    @staticmethod
    def _bare(head: bytes) -> bytes:
        return head.partition(b"{")[0].strip(b" \t")

    @classmethod
    def _name(cls, head: bytes) -> str:
        bare = cls._bare(head)
        return bare.decode() if bare else read_series(head)[0]


class _LazySeries(Sequence[Series]):
    def __init__(self, layout: Layout, lines: Ints) -> None:
        self._layout = layout
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> Series: ...
    @overload
    def __getitem__(self, index: slice) -> list[Series]: ...
    def __getitem__(self, index: int | slice) -> Series | list[Series]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        name, labels = self._layout.read(index)
        return Series(name, labels, int(self._lines[index]))


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """One answer of a target, read.

    values:        shape (len(layout),); NaN where the page says NaN.
    at:            shape (len(layout),), POSIX seconds of each line's own timestamp; NaN where it has none.
    lines:         shape (len(layout),), number of each series' line on this page, from 1.
    dropped:       the lines that were not believed, the first `MAX_DROPPED` of them; `dropped_total` counts all.
    broken:        names of the families of which a line did not parse, as far as the name can be read. Contains "" if
                   more than `MAX_DROPPED` lines were dropped: any family may have lost one.
    conflicts:     indices of series that the page has twice with different values; `values` has the largest.
    """

    layout: Layout
    values: Floats
    at: Floats
    lines: Ints
    dropped: tuple[Dropped, ...]
    dropped_total: int
    broken: frozenset[str] = frozenset()
    conflicts: tuple[int, ...] = ()
