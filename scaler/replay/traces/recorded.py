"""What a reader hands on: a load, and what a person should know about how it was read.

It knows what every reader needs at its end (arrivals in order, tokens that are whole) and no format.

Worked example: `recorded("two", at=[3.0, 1.0], prompt=[5, 6], output=[1, 1])` is a load that begins with the request of
second 1.0, and its one note says that 1 of 2 rows was out of order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..columns import Mask
from ..trace import Trace

MOST_TOKENS = 1e9  # of one request: a larger number is a time or a hash, and not a count of tokens
MOST_REQUESTS = 50_000_000  # of one load: more would fill the memory, and nobody waits for the replay


class BadLoad(ValueError):  # noqa: N818 - it names what is bad
    """Nothing that could be replayed. The message begins with the place."""


class Recorded(NamedTuple):
    """notes: sentences for a person, about what was left out or made up."""

    load: Trace
    notes: tuple[str, ...] = ()


def recorded(name: str, at: ArrayLike, prompt: ArrayLike, output: ArrayLike, notes: tuple[str, ...] = ()) -> Recorded:
    """A load of what was read, in order of arrival. Raises BadLoad if nothing was."""
    times = np.asarray(at, dtype=float)
    if not len(times):
        raise BadLoad(f"{name}: has no request")
    late = int((np.diff(times) < 0.0).sum())
    if late:
        order = np.argsort(times, kind="stable")
        notes = (*notes, f"{name}: {late} of {len(times)} rows were out of order, and were put in order")
    else:
        order = np.arange(len(times))
    tokens = (np.rint(np.asarray(column, dtype=float)).astype(np.int64) for column in (prompt, output))
    inputs, outputs = (column[order] for column in tokens)
    return Recorded(Trace(name, times[order], inputs, outputs), notes)


def subset(load: Trace, mask: Mask, beginning_s: float = 0.0) -> Trace:
    """Some of the requests, of a load that begins at `beginning_s` of this one. Raises BadLoad if there is none."""
    if not mask.any():
        raise BadLoad(f"{load.name}: has no request in what was asked of it")
    return Trace(load.name, load.at[mask] - beginning_s, load.prompt[mask], load.output[mask])
