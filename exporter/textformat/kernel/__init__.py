"""Reads responses with numba: bytes to numbers, without the GIL and without a Python object per line.

`follow` reads only the numbers as long as each line begins as it did in the remembered response. Otherwise `survey`
finds the heads (names and labels) of the lines, and recognizes remembered lines wherever they moved to; `measure`
reads the numbers behind them. `select` finds the lines of a selection. All repeat the grammar of `parser`. What they do
not decide (SLOW, UNDECIDED) the plain reader decides.

Worked example: after the response `a 1`, `follow` on `a 2` compares one byte and reads `2`; on `b 2` it returns
DEVIATED, and `survey` finds a new line of kind SAMPLE.
"""

from .common import BAD, DEVIATED, DUPLICATE, NOT_UTF8, SAMPLE, SKIP, SLOW, TYPE, UNDECIDED
from .lines import follow, select, survey
from .numbers import measure

__all__ = [
    "BAD", "DEVIATED", "DUPLICATE", "NOT_UTF8", "SAMPLE", "SKIP", "SLOW", "TYPE", "UNDECIDED", "follow", "measure",
    "select", "survey",
]  # fmt: skip
