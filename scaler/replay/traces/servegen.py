"""Loads of ServeGen's published clients: measured rates, from which arrivals are drawn.

ServeGen (alibaba/ServeGen, data/CATEGORY/MODEL) has two files for each client of a production model:
`chunk-N-trace.csv`, a line per window of 10 minutes (`second,requests/s,cv,Gamma|Weibull,shape,scale`; no name and
rate 0 without arrivals), and `chunk-N-dataset.json`, every few hours the distribution of prompt and answer lengths.
In a window exactly as many requests come as were measured; the gaps between them are drawn from the window's own
distribution and stretched to fill it, as ServeGen's `construct.py` does. Lengths are drawn independently. Each window
of each client draws from a seed of its own: one more client, or a shorter part, changes none of the others. Images and
audio are not read.

Worked example: the line "600,0.01,0.9,Gamma,1.2,83.0" is 6 requests between second 600 and second 1200.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from .recorded import MOST_REQUESTS, BadLoad, Recorded, lines, reading, recorded

TRACE, DATASET = "-trace.csv", "-dataset.json"
COLUMNS = 6
WIDTH_S = 600.0
PATTERNS = ("", "Gamma", "Weibull")
PROMPT, OUTPUT = "input_tokens", "output_tokens"


class Window(NamedTuple):
    """From second `at` until `end` there are `rate` requests/s. pattern, shape: of the gaps; their mean is 1/rate."""

    at: float
    end: float
    rate: float
    pattern: str
    shape: float


class Lengths(NamedTuple):
    """tokens: lengths that occur, ascending. below: share of requests that have at most so many, rising to 1."""

    tokens: Floats
    below: Floats


class TraceClient(NamedTuple):
    """lengths: by the second from which they hold, then by PROMPT and OUTPUT. note: "" or what was left out."""

    windows: list[Window]
    lengths: Mapping[float, Mapping[str, Lengths]]
    note: str


def is_servegen(first: str) -> bool:
    return _window(first) is not None


def read_servegen(name: str, paths: Sequence[Path], seed: int, begin: float = 0.0, end: float = np.inf) -> Recorded:
    """The load of clients, given their traces; each dataset lies beside its trace. Raises BadLoad.

    begin, end: seconds; windows that are wholly outside are not drawn.
    """
    clients = [_client(path, begin, end) for path in paths]
    count = sum(round(window.rate * (window.end - window.at)) for client in clients for window in client.windows)
    if count > MOST_REQUESTS:
        raise BadLoad(f"{name}: {count} requests are more than a replay can hold ({MOST_REQUESTS}): name fewer clients "
                      "or a shorter part (clients=…, from=…, to=…)")  # fmt: skip
    parts = [drawn for path, client in zip(paths, clients, strict=True) for drawn in _draw_all(path, client, seed)]
    at, prompt, output = (np.concatenate([np.zeros(0), *(part[which] for part in parts)]) for which in range(3))
    order = np.argsort(at, kind="stable")
    notes = (*(client.note for client in clients if client.note),
             f"{name}: arrivals and lengths are drawn from measured rates and distributions")  # fmt: skip
    return recorded(name, at[order], prompt[order], output[order], notes)


def traces_in(folder: Path) -> list[Path]:
    """The clients' traces of a folder, in the order of their numbers. Raises BadLoad if there is none."""
    found = sorted(folder.glob(f"chunk-*{TRACE}"), key=lambda path: (len(path.name), path.name))
    if not found:
        raise BadLoad(f"{folder}: is a folder without ServeGen's chunk-N{TRACE} files")
    return found


def _client(path: Path, begin: float, end: float) -> TraceClient:
    windows, note = _windows(path)
    wanted = [window for window in windows if window.end > begin and window.at < end]
    return TraceClient(wanted, _dataset(path.with_name(path.name.removesuffix(TRACE) + DATASET)), note)


def _draw_all(path: Path, client: TraceClient, seed: int) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Arrivals, prompts and answers of each window."""
    sections = sorted(client.lengths)
    number = zlib.crc32(path.name.encode())
    for window in client.windows:
        rng = np.random.default_rng([seed, number, round(window.at)])
        at = arrivals(window, rng)
        # The lengths of the section that has begun; before the first that is known, those of the first.
        section = client.lengths[sections[max(0, bisect_right(sections, window.at) - 1)]]
        yield at, draw(section[PROMPT], len(at), rng), draw(section[OUTPUT], len(at), rng)


def arrivals(window: Window, rng: np.random.Generator) -> Floats:
    """Seconds at which a window's requests come: as many as were measured, ascending, none outside of it."""
    width = window.end - window.at
    count = round(window.rate * width)
    if count == 0:
        return np.zeros(0)
    match window.pattern:
        case "Gamma":
            gaps = rng.gamma(window.shape, size=count + 1)
        case "Weibull":
            gaps = rng.weibull(window.shape, size=count + 1)
        case _:  # requests came, too few to fit a distribution to
            gaps = rng.exponential(size=count + 1)
    total = gaps.sum()
    if not (total > 0.0 and np.isfinite(total)):  # a shape so small that every gap is 0 to a float
        return np.sort(rng.uniform(window.at, window.end, count))
    # A sum of tiny gaps is rounded up past the end by some 1e-13 s.
    return np.minimum(window.at + np.cumsum(gaps[:-1]) * (width / total), window.end)


def draw(lengths: Lengths, count: int, rng: np.random.Generator) -> Floats:
    places = np.searchsorted(lengths.below, rng.uniform(size=count), side="right")
    return lengths.tokens[np.minimum(places, len(lengths.tokens) - 1)]


def _windows(path: Path) -> tuple[list[Window], str]:
    windows: list[Window] = []
    bad, first_bad = 0, ""
    with lines(path) as found:
        for line, text in enumerate(found, 1):
            window = _window(text)
            if window is not None and not (windows and window.at <= windows[-1].at):
                windows.append(window)
            elif text.strip():
                bad += 1
                first_bad = first_bad or (f"{path}:{line}: must be second,rate,cv,pattern,shape,scale, later than the "
                                          f"line before, got {text[:60]!r}")  # fmt: skip
    if not windows:
        raise BadLoad(first_bad or f"{path}: has no window")
    # A window lasts as long as the median of all; if the next one is missing, its load is unknown.
    width = float(np.median(np.diff([window.at for window in windows]))) if len(windows) > 1 else WIDTH_S
    ends = [min(window.at + width, after.at) for window, after in pairwise(windows)]
    windows = [window._replace(end=end) for window, end in zip(windows, [*ends, windows[-1].at + width], strict=True)]
    return windows, f"{bad} bad row{'s' * (bad > 1)} left out, the first {first_bad}" if bad else ""


def _window(text: str) -> Window | None:
    cells = text.strip().split(",")
    if len(cells) != COLUMNS or cells[3] not in PATTERNS:
        return None
    try:
        at, rate, _, shape, scale = (float(cells[column]) for column in (0, 1, 2, 4, 5))
    except ValueError:
        return None
    possible = at >= 0.0 and 0.0 <= rate < np.inf and (not cells[3] or (0.0 < shape < np.inf and scale > 0.0))
    return Window(at, at + WIDTH_S, rate, cells[3], shape) if possible else None


def _dataset(path: Path) -> dict[float, Mapping[str, Lengths]]:
    """Distributions of lengths by the second from which they hold."""
    try:
        with reading(path) as opened:
            document = json.loads(opened.read())
        sections = {float(at): _section(fields) for at, fields in document.items()}
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, BadLoad):
            raise
        raise BadLoad(f"{path}: must be ServeGen's {{second: {{{PROMPT}: {{tokens: share}}, {OUTPUT}: …}}}}: "
                      f"{type(error).__name__}: {error}") from None  # fmt: skip
    usable = {at: section for at, section in sections.items() if section is not None}
    if not usable:
        raise BadLoad(f"{path}: has no distribution of {PROMPT} and {OUTPUT}")
    return usable


def _section(fields: Mapping[str, str]) -> Mapping[str, Lengths] | None:
    """None for a window without requests."""
    found = {which: _lengths(fields[which]) for which in (PROMPT, OUTPUT)}
    return None if None in found.values() else {which: one for which, one in found.items() if one is not None}


def _lengths(text: str) -> Lengths | None:
    """Parses `{71: 0.25, 72: 0.75}`, which is Python, not JSON."""
    numbers = [float(number) for number in _numbers(text)]
    tokens, shares = np.array(numbers[::2]), np.array(numbers[1::2])
    if len(tokens) != len(shares) or (tokens < 0.0).any() or not (shares >= 0.0).all():
        raise ValueError(f"no distribution: {text[:40]}")
    if not shares.sum() > 0.0:
        return None
    order = np.argsort(tokens)
    return Lengths(tokens[order], np.cumsum(shares[order]) / shares.sum())


def _numbers(text: str) -> Iterable[str]:
    inside = text.strip().removeprefix("{").removesuffix("}").strip()
    return inside.replace(":", ",").split(",") if inside else ()
