"""Loads in CSV: Azure's LLM inference traces, BurstGPT, and plain `t,input,output`. Lines in, columns out.

A table is known by the names in its first line; further columns are not read. Nothing is quoted in these formats, so
a line is a row and a comma is a comma. A row that is no row costs itself, and is counted; a row that says of itself
that it failed (no answer in BurstGPT) is counted apart. Rows are converted a block at a time, and one by one only in a
block with a bad one: a million take three seconds.

Formats: Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and …2024.md (stamps with 7 decimals, or with an
offset from UTC); HPMLL/BurstGPT, README.md (seconds from the first midnight).

Worked example: "TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03.9799600,4808,10" and
"2023-11-16 18:17:04.0000000,180,8" are two requests, at 0 s and at 0.02004 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, islice

import numpy as np

from exporter.model import Floats

from .recorded import MOST_TOKENS, BadLoad, Recorded, recorded

BLOCK = 100_000  # rows converted at once
POSIX_S = 1e9  # seconds from here on are dates (2001), and no length of a load
LATEST_S = 1e11  # and from here on they are milliseconds
Second = Callable[[str], float]
SHOWN = 60  # characters of a bad row that a person is shown

TIMES = ("t", "time", "timestamp", "at", "arrival", "arrival_s", "arrived_at")
PROMPTS = ("input", "prompt", "inp", "input_tokens", "prompt_tokens", "input_length", "contexttokens", "request tokens")
OUTPUTS = (
    "output", "out", "output_tokens", "completion_tokens", "output_length", "generatedtokens", "generated_tokens",
    "response tokens",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableLayout:
    """at, prompt, output: places of the columns. headed: the first line is names. answers: a row without one failed."""

    at: int
    prompt: int
    output: int
    headed: bool = True
    answers: bool = False


@dataclass(slots=True)
class _Rows:
    """The rows read so far. blocks: each of shape (3, rows). first_bad: place and problem of the first invalid row."""

    blocks: list[Floats] = field(default_factory=list)
    failed: int = 0
    bad: int = 0
    first_bad: str = ""


def layout_of(first: str) -> TableLayout | None:
    """Where the columns are, from the first line; None if it is neither names we know nor three numbers."""
    cells = [cell.lower() for cell in _cells(first)]
    places = [next((cells.index(name) for name in names if name in cells), None) for names in (TIMES, PROMPTS, OUTPUTS)]
    match places:
        case [int() as at, int() as prompt, int() as output]:
            return TableLayout(at, prompt, output, answers="response tokens" in cells)
    if len(cells) == len(places) and all(_is_number(cell) or _is_stamp(cell) for cell in cells):
        return TableLayout(0, 1, 2, headed=False)
    return None


def read_table(name: str, source: str, lines: Iterable[str]) -> Recorded:
    """The load of a table. source: the file, for errors. Raises BadLoad."""
    numbered = iter(enumerate(lines, 1))
    line, first = next(((line, text) for line, text in numbered if text.strip()), (1, ""))
    layout = layout_of(first)
    if layout is None:
        raise BadLoad(f"{source}:{line}: must be the names of columns ({TIMES[0]},{PROMPTS[0]},{OUTPUTS[0]}, or those "
                      f"of Azure's or BurstGPT's files) or three numbers, got {_shown(first)}")  # fmt: skip
    rows = numbered if layout.headed else chain([(line, first)], numbered)
    read = _Rows()
    second: Second | None = None
    while block := [row for row in islice(rows, BLOCK) if row[1] and not row[1].isspace()]:
        if second is None:
            cells = _cells(block[0][1])
            second = _stamp if len(cells) > layout.at and _is_stamp(cells[layout.at]) else _second
        _take(read, block, layout, second, source)
    notes = _notes(read, source)
    at, prompt, output = np.concatenate([np.zeros((3, 0)), *read.blocks], axis=1)
    if not len(at):
        raise BadLoad("; ".join([f"{source}: has no request", *notes]))
    # Stamps and dates say when it was; BurstGPT counts from a midnight that may be months ago.
    begin = at.min() if at.min() >= POSIX_S or layout.answers else 0.0
    return recorded(name, at - begin, prompt, output, notes)


def _take(read: _Rows, block: Sequence[tuple[int, str]], layout: TableLayout, second: Second, source: str) -> None:
    try:
        parsed = _at_once(block, layout, second)
    except (ValueError, IndexError):
        parsed = np.array(list(_one_by_one(read, block, layout, second, source))).reshape(-1, 3).T
    if layout.answers:
        answered = parsed[2] > 0.0
        read.failed += int((~answered).sum())
        parsed = parsed[:, answered]
    read.blocks.append(parsed)


def _at_once(block: Sequence[tuple[int, str]], layout: TableLayout, second: Second) -> Floats:
    """ValueError or IndexError if a row is bad, whichever it is."""
    cells = [text.split(",") for _, text in block]
    convert = float if second is _second else second
    columns = ((layout.at, convert), (layout.prompt, float), (layout.output, float))
    parsed = np.array([list(map(read, [row[column] for row in cells])) for column, read in columns])
    seconds, tokens = parsed[0], parsed[1:]
    if not (((tokens >= 0.0) & (tokens <= MOST_TOKENS)).all() and ((seconds >= 0.0) & (seconds < LATEST_S)).all()):
        raise ValueError
    return parsed


def _one_by_one(
    read: _Rows, block: Sequence[tuple[int, str]], layout: TableLayout, second: Second, source: str
) -> Iterator[tuple[float, float, float]]:
    for line, text in block:
        try:
            yield _row(text, layout, second)
        except (ValueError, IndexError) as error:
            read.bad += 1
            what = "too few columns" if isinstance(error, IndexError) else str(error)
            read.first_bad = read.first_bad or f"{source}:{line}: {what}, got {_shown(text)}"


def _row(text: str, layout: TableLayout, second: Second) -> tuple[float, float, float]:
    cells = _cells(text)
    prompt, output = float(cells[layout.prompt]), float(cells[layout.output])
    if not (0.0 <= prompt <= MOST_TOKENS and 0.0 <= output <= MOST_TOKENS):  # nor NaN
        raise ValueError(f"tokens must be from 0 to {MOST_TOKENS:g}")
    return second(cells[layout.at]), prompt, output


def _second(cell: str) -> float:
    at = float(cell)
    if not 0.0 <= at < LATEST_S:
        raise ValueError("the time must be seconds from the load's beginning, or a date")
    return at


def _stamp(cell: str) -> float:
    at = datetime.fromisoformat(cell.strip())
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _cells(line: str) -> list[str]:
    return [cell.strip(' "') for cell in line.split(",")]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_stamp(cell: str) -> bool:
    if _is_number(cell):  # "20231116" is both
        return False
    try:
        _stamp(cell)
    except ValueError:
        return False
    return True


def _notes(read: _Rows, source: str) -> tuple[str, ...]:
    notes = []
    if read.bad:
        notes.append(f"{read.bad} bad row{'s' * (read.bad > 1)} left out, the first {read.first_bad}")
    if read.failed:
        notes.append(f"{source}: {read.failed} failed requests (0 response tokens) left out")
    return tuple(notes)


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 3] + "...")
