"""Makes a trace of what a reader has read, with notes for people, and opens files whether they are compressed or not.

Gzip is detected by its first bytes, never by the name. Bytes that are not UTF-8 become question marks: they are in a
column that nothing reads, or in a bad row, which the reader of rows reports.

Worked example: `recorded("two", at=[3.0, 1.0], prompt=[5, 6], output=[1, 1])` is a trace that begins with the request
of second 1.0, and its one note says that 1 of 2 rows was out of order. The name of
"/data/AzureLLMInferenceTrace_conv.csv.gz" is "AzureLLMInferenceTrace_conv".
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..columns import Mask, Trace

MOST_TOKENS = 1e9  # of one request: a larger number is a time or a hash, and not a count of tokens
MOST_REQUESTS = 50_000_000  # of one load: more would fill the memory, and the replay would take too long
_GZIP = b"\x1f\x8b"
_ENDINGS = (".gz", ".csv", ".jsonl", ".json", ".npz", ".txt")


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


@contextmanager
def reading(path: Path) -> Iterator[io.BufferedReader | gzip.GzipFile]:
    """The bytes of a file, unpacked. Whatever fails on the way is a BadLoad."""
    try:
        with path.open("rb") as opened:
            packed = opened.peek(len(_GZIP))[: len(_GZIP)] == _GZIP
            yield gzip.GzipFile(fileobj=opened) if packed else opened
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadLoad(f"{path}: its gzip is broken or cut short: {error}") from None
    except OSError as error:
        raise BadLoad(f"{path}: cannot be read: {error.strerror or error}") from None


@contextmanager
def lines(path: Path) -> Iterator[Iterator[str]]:
    with reading(path) as opened:
        text = io.TextIOWrapper(opened, encoding="utf-8-sig", errors="replace")
        try:
            yield (line.rstrip("\r\n") for line in text)
        finally:
            text.detach()


def name_of(path: Path) -> str:
    name = path.name or str(path)
    while (cut := next((ending for ending in _ENDINGS if name.lower().endswith(ending)), None)) and name != cut:
        name = name[: -len(cut)]
    return name
