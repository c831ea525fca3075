"""The numba half of the scanner: bytes to numbers, without the GIL and without a Python object per line.

A page is first `follow`ed: as long as each line begins as it did on the remembered page, only its numbers are read.
Else `survey` finds the heads (names and labels) of its lines, still recognising remembered lines wherever they moved
to, and `measure` reads the numbers behind them. All repeat the grammar of `line.py` and may say "I do not know"
(SLOW, ASK): then the plain reader has the word.

Worked example: after the page `a 1`, `follow` on `a 2` compares one byte, reads `2` and is done; on `b 2` it returns
DEVIATED, and `survey` finds a new line of kind SAMPLE.

The few helpers that `heads` and `lines` both need stand in both.
"""

from .heads import survey
from .kinds import ASK, BAD, DEVIATED, DUPLICATE, NOT_UTF8, SAMPLE, SKIP, SLOW, TYPE
from .lines import follow, select
from .numbers import measure

__all__ = [
    "ASK",
    "BAD",
    "DEVIATED",
    "DUPLICATE",
    "NOT_UTF8",
    "SAMPLE",
    "SKIP",
    "SLOW",
    "TYPE",
    "follow",
    "measure",
    "select",
    "survey",
]
