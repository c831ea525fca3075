r"""Selects the lines of a response that a scanner reads; all other lines cost no memory.

A scanner with a `Selection` reads, checks and counts only the lines of the selected metrics. It skips all others: no
array has an entry for them, and nothing about them is remembered. A response of 700,000 series of which ten are
selected costs its bytes while it is read, and ten series afterwards.

`Selection.lines` is the plain form. The kernels apply the same rule with `Tables`, one look-up per byte of a name.

Worked example: `Selection(names=frozenset({"up"}), signs=("go_",)).lines(b"# HELP up x\nup 1\ngo_threads 4\n")` has the
body `b"up 1\n"`, which is line 2, and one name that begins with `go_`.

Of the buckets of a histogram (`ranged`) only those are selected whose bound is in a range, and +Inf: each target has
ranges of its own, which may change between two responses.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Distinct names counted for one sign. The counts only rank kinds with equally strong signs.
MAX_SIGN_NAMES = 256
MAX_STATES = 2**16 - 1  # a state is a uint16

# What begins a line: `name`, `{"name`, `# TYPE name` or `# TYPE "name`.
_BEGIN = re.compile(rb"[ \t]*+(?:(?P<type>#[ \t]*+TYPE[ \t]++)\"?+|\{[ \t]*+\"|)(?P<name>[a-zA-Z0-9_:]*+)(?P<end>\"?+)")
_NAME_BYTES = (string.ascii_letters + string.digits + "_:").encode()

START = 1  # state: nothing is read yet. State 0: no selected name or sign begins like this
# Flag of a state: a selected name ends here; every name that gets here is selected; from RANGED on, the buckets of a
# group of histograms end here, and their range decides.
EXACT, PREFIX, RANGED = 1, 2, 3
# The bound of a bucket. A number that a kernel does not read (an exponent, more than 15 digits) is selected like +Inf.
_BOUND = re.compile(rb'(?<=[{, \t])le="(?P<text>[^"\n]*)(?P<end>"?)')
_NUMBER = re.compile(rb"[0-9]*(?:\.[0-9]*)?")
MAX_DIGITS = 15


class Selected(NamedTuple):
    """The selected lines of one response.

    body:    these lines, each with a line feed.
    numbers: of each its number in the response, from 1.
    signs:   sign -> number of distinct names that begin with it, at most MAX_SIGN_NAMES.
    """

    body: bytes
    numbers: NDArray[np.int32]
    signs: Mapping[str, int]


class Tables(NamedTuple):
    """A selection for the kernels: `step[state, column[byte]]` is the next state.

    flags: per state, EXACT, PREFIX or 0. No step leads on from a PREFIX.
    sign:  per state, the index of the longest sign that ends there or before, else -1.
    """

    column: NDArray[np.uint8]
    step: NDArray[np.uint16]
    flags: NDArray[np.uint8]
    sign: NDArray[np.int16]


@dataclass(frozen=True)
class Selection:
    """The metrics that a scanner reads.

    names:    selected as a whole.
    prefixes: every metric that begins with one of them is selected.
    signs:    metrics that begin with one of them are counted, by distinct names, for the longest of them.
    ranged:   groups of `_bucket` names; of each group the buckets in its range are selected.
    """

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    ranged: tuple[frozenset[str], ...] = ()

    @property
    def everything(self) -> NDArray[np.float64]:
        """The ranges that select all buckets: low and high of each group, one after the other."""
        return np.array([0.0, np.inf] * len(self.ranged))

    def __post_init__(self) -> None:
        for text in (*self.names, *self.prefixes, *self.signs, *frozenset().union(*self.ranged)):
            if not text or set(text.encode()) - set(_NAME_BYTES):
                raise ValueError(f"selection: must be part of a metric name, got {text!r}")
        for sign in self.signs:
            inside = [prefix for prefix in self.prefixes if sign != prefix and sign.startswith(prefix)]
            if inside:  # a pass over a name ends at a prefix
                raise ValueError(f"selection: the sign {sign!r} must not begin with {inside[0]!r}")

    def lines(self, body: bytes, ranges: NDArray[np.float64] | None = None) -> Selected:
        """The selected lines of a response, without a kernel. ranges: as in `everything`, which is the default."""
        bounds = (self.everything if ranges is None else ranges).reshape(-1, 2).tolist()
        kept: list[bytes] = []
        numbers: list[int] = []
        counted: dict[str, set[bytes]] = {}
        for number, line in enumerate(body.split(b"\n"), 1):
            begin = _BEGIN.match(line)
            name = begin["name"] if begin is not None else b""
            if begin is None or not name:
                continue
            text, is_quoted = name.decode(), line[begin.start("name") - 1 : begin.start("name")] == b'"'
            sign = max((sign for sign in self.signs if text.startswith(sign)), key=len, default=None)
            if begin["type"] is None and sign is not None and len(counted.setdefault(sign, set())) < MAX_SIGN_NAMES:
                counted[sign].add(name)
            is_whole = begin["end"] == b'"' if is_quoted else True
            group = next((group for group, names in enumerate(self.ranged) if text in names), None)
            if text.startswith(self.prefixes) or (
                is_whole
                and (
                    text in self.names
                    if group is None
                    else begin["type"] is not None or _in_range(line, begin.end("name"), *bounds[group])
                )
            ):
                kept.append(line + b"\n")
                numbers.append(number)
        return Selected(
            b"".join(kept),
            np.array(numbers, np.int32),
            MappingProxyType({sign: len(names) for sign, names in counted.items()}),
        )

    @cached_property
    def tables(self) -> Tables:
        group_of = {name: group for group, names in enumerate(self.ranged) for name in names}
        texts = (*self.names, *self.prefixes, *self.signs, *group_of)
        used = sorted(set("".join(texts).encode()))
        column = np.zeros(256, np.uint8)
        column[used] = np.arange(1, len(used) + 1)
        states = {"": START}
        for text in texts:
            if not any(text != prefix and text.startswith(prefix) for prefix in self.prefixes):
                for length in range(1, len(text) + 1):
                    states.setdefault(text[:length], len(states) + 1)
        if len(states) > MAX_STATES:
            raise ValueError(f"selection: must have at most {MAX_STATES} states, got {len(states)}")
        step = np.zeros((len(states) + 1, len(used) + 1), np.uint16)
        flags, sign = np.zeros(len(states) + 1, np.uint8), np.full(len(states) + 1, -1, np.int16)
        sign_of = {text: index for index, text in enumerate(self.signs)}
        for text, state in states.items():
            # A text follows the one that is a character shorter, and has its sign, if it is no longer one itself.
            before = states[text[:-1]]
            sign[state] = sign_of.get(text, sign[before])
            if text:
                step[before, column[ord(text[-1])]] = state
            flags[state] = PREFIX if text in self.prefixes else EXACT if text in self.names else 0
            if text in group_of:
                flags[state] = RANGED + group_of[text]
        return Tables(column, step, flags, sign)


def _in_range(line: bytes, start: int, low: float, high: float) -> bool:
    """Whether a bucket is selected. start: behind its name. NaN as range selects none."""
    found = _BOUND.search(line, start)
    if isnan(low):
        return False
    if found is None or not found["end"] or not _NUMBER.fullmatch(found["text"]):
        return True
    digits = sum(48 <= byte <= 57 for byte in found["text"])  # noqa: PLR2004 - ASCII
    return not 0 < digits <= MAX_DIGITS or low <= float(found["text"]) <= high


EVERYTHING = Tables(
    np.zeros(256, np.uint8), np.zeros((2, 1), np.uint16), np.array([0, PREFIX], np.uint8), np.full(2, -1, np.int16)
)
