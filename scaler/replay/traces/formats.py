"""Detects the format of a trace by its content, and reads it: NumPy's npz, Mooncake's JSON lines, or another reader's.

The first bytes show npz, the first line everything else. npz has three arrays: `dt_ms`, milliseconds since the request
before (of the first: since the beginning), `inp` and `out`, tokens. Nothing is unpickled: a file that needs that is
refused.

Mooncake's published traces (kvcache-ai/Mooncake, FAST25-release/traces) have their stamps on a grid of 3 s, give or
take a few milliseconds: all requests of three seconds would arrive at once. If all stamps are on a grid of a second or
more, each request is moved to a moment drawn uniformly from its step of the grid. Finer stamps are kept. Which prompts
share a prefix is not read.

Worked example: stamps 0, 0, 3000, 6000 are two requests somewhere in 0..3 s, one in 3..6 s and one in 6..9 s.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from exporter.model import Floats

from .recorded import MOST_TOKENS, BadLoad, Recorded, lines, name_of, reading, recorded
from .servegen import DATASET, TRACE, is_servegen, read_servegen, traces_in
from .tables import layout_of, read_table

TABLE, MOONCAKE, SERVEGEN, NPZ = "csv", "mooncake", "servegen", "npz"
FORMATS = (TABLE, MOONCAKE, SERVEGEN, NPZ)
LONGEST_LINE = 1 << 20  # bytes looked at to know a format: Mooncake's first line is a few hundred
SIGN = b"PK\x03\x04"
ARRAYS = ("dt_ms", "inp", "out")
COARSE_MS = 1000.0
BESIDE_MS = 5.0  # in conversation_trace.jsonl a third of the stamps are up to 3 ms beside the grid
KEYS = ("timestamp", "input_length", "output_length")


def read(path: Path, form: str | None = None, seed: int = 0) -> Recorded:
    """The load in a file. form: one of FORMATS; None is what its content says. Raises BadLoad."""
    name = name_of(path)
    if path.is_dir():
        return read_servegen(path.resolve().name, traces_in(path), seed)
    match form or format_of(path):
        case "csv":
            with lines(path) as found:
                return read_table(name, str(path), found)
        case "mooncake":
            with lines(path) as found:
                return read_mooncake(name, str(path), found, seed)
        case "servegen":
            return read_servegen(name.removesuffix(TRACE.removesuffix(".csv")), [path], seed)
        case "npz":
            return read_packed(name, path)
    raise BadLoad(f"{path}: format must be one of {', '.join(FORMATS)}, got {form}")


def read_clients(folder: Path, clients: Sequence[int], seed: int, begin: float, end: float) -> Recorded:
    """The load of some of ServeGen's clients, where `begin` to `end` (seconds) is wanted of it. Raises BadLoad."""
    paths = [folder / f"chunk-{client}{TRACE}" for client in clients]
    return read_servegen(f"{folder.resolve().name}-{'+'.join(map(str, clients))}", paths, seed, begin, end)


def format_of(path: Path) -> str:
    with reading(path) as opened:
        head = opened.read(LONGEST_LINE)
    if head.startswith(SIGN):
        return NPZ
    text = head.decode("utf-8-sig", errors="replace")
    line, first = next(((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()), (1, ""))
    if not first:
        raise BadLoad(f"{path}: is empty")
    if is_mooncake(first):
        return MOONCAKE
    if is_servegen(first):
        return SERVEGEN
    if layout_of(first) is not None:
        return TABLE
    if path.name.endswith(DATASET):
        raise BadLoad(f"{path}: is one half of a client of ServeGen: give its {path.name.removesuffix(DATASET)}{TRACE}")
    shown = first if len(first) <= 60 else first[:57] + "..."  # noqa: PLR2004
    raise BadLoad(
        f"{path}:{line}: is no load we know: must be CSV with a time, input and output tokens (Azure's and BurstGPT's "
        f"too), JSON lines with {', '.join(KEYS)} (Mooncake), a trace of ServeGen, or npz; got {shown!r}"
    )


def read_packed(name: str, path: Path) -> Recorded:
    with reading(path) as opened:
        body = io.BytesIO(opened.read())
    try:
        with np.load(body, allow_pickle=False) as arrays:
            columns = [np.asarray(arrays[one], dtype=float) for one in ARRAYS]
    except KeyError:
        raise BadLoad(f"{path}: must have the arrays {', '.join(ARRAYS)}") from None
    except (ValueError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise BadLoad(f"{path}: is no npz of numbers: {error}") from None
    if any(column.ndim != 1 or len(column) != len(columns[0]) for column in columns):
        raise BadLoad(f"{path}: {', '.join(ARRAYS)} must be of one length, got {[one.shape for one in columns]}")
    gaps, prompt, output = columns
    good = np.isfinite(gaps) & (gaps >= 0.0)
    good &= (prompt >= 0.0) & (prompt <= MOST_TOKENS) & (output >= 0.0) & (output <= MOST_TOKENS)
    if not good.all():
        # A gap that is wrong moves all that come after it: unlike a row of a table it cannot be left out.
        first = int(np.argmin(good))
        got = ", ".join(f"{one}={column[first]:g}" for one, column in zip(ARRAYS, columns, strict=True))
        raise BadLoad(f"{path}: request {first}: must be numbers from 0, tokens to {MOST_TOKENS:g}, got {got}")
    return recorded(name, np.cumsum(gaps) / 1000, prompt, output)


def is_mooncake(first: str) -> bool:
    return _row(first) is not None


def read_mooncake(name: str, location: str, lines: Iterable[str], seed: int) -> Recorded:
    """The load of a trace. location: the file, for errors. Raises BadLoad."""
    rows, bad, first_bad = [], 0, ""
    for line, text in enumerate(lines, 1):
        if not text.strip():
            continue
        row = _row(text)
        if row is None:
            bad += 1
            first_bad = first_bad or f"{location}:{line}: must have {', '.join(KEYS)} as numbers, got {text[:60]!r}"
        else:
            rows.append(row)
    notes = [f"{bad} bad row{'s' * (bad > 1)} left out, the first {first_bad}"] if bad else []
    if not rows:
        raise BadLoad(first_bad or f"{location}: has no request")
    stamps, prompt, output = np.array(rows).T
    grid = grid_of(stamps)
    if grid is not None:
        steps = np.round(stamps / grid) + np.random.default_rng(seed).uniform(size=len(stamps))
        order = np.argsort(steps, kind="stable")
        stamps, prompt, output = grid * steps[order], prompt[order], output[order]
        notes.append(f"{location}: its stamps are on a grid of {grid / 1000:g} s: requests were spread within it")
    return recorded(name, stamps / 1000, prompt, output, tuple(notes))


def grid_of(stamps: Floats) -> float | None:
    """The step of the grid that all stamps stand on, ms; None if there is none, or one finer than a second."""
    steps = np.diff(np.unique(stamps))
    steps = steps[steps >= COARSE_MS / 2]
    if not len(steps):
        return None
    grid = float(np.round(np.median(steps), -1))
    beside = np.abs(stamps - grid * np.round(stamps / grid)).max()
    return grid if grid >= COARSE_MS and beside <= BESIDE_MS else None


def _row(text: str) -> tuple[float, float, float] | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    row = tuple(document.get(key) for key in KEYS)
    match row:
        case (int() | float() as at, int() | float() as prompt, int() | float() as output):
            possible = 0 <= at < 1e14 and 0 <= prompt <= MOST_TOKENS and 0 <= output <= MOST_TOKENS  # noqa: PLR2004
            return (float(at), float(prompt), float(output)) if possible else None
    return None
