"""Loads in Mooncake's JSON lines: `{"timestamp": ms, "input_length": tokens, "output_length": tokens, …}`.

The published traces (kvcache-ai/Mooncake, FAST25-release/traces) have their stamps on a grid of 3 s, give or take a few
milliseconds: all requests of three seconds would arrive at once. So where all stamps stand on a grid of a second or
more, each request is moved to a moment drawn uniformly from its step of the grid; stamps that are finer stand. Which
prompts share a prefix is not read.

Worked example: stamps 0, 0, 3000, 6000 are two requests somewhere in 0..3 s, one in 3..6 s and one in 6..9 s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np

from exporter.model import Floats

from .recorded import MOST_TOKENS, BadLoad, Recorded, recorded

COARSE_MS = 1000.0
BESIDE_MS = 5.0  # in conversation_trace.jsonl a third of the stamps are up to 3 ms beside the grid
KEYS = ("timestamp", "input_length", "output_length")


def is_mooncake(first: str) -> bool:
    return _row(first) is not None


def read_mooncake(name: str, place: str, lines: Iterable[str], seed: int) -> Recorded:
    """The load of a trace. place: the file, for errors. Raises BadLoad."""
    rows, bad, first_bad = [], 0, ""
    for line, text in enumerate(lines, 1):
        if not text.strip():
            continue
        row = _row(text)
        if row is None:
            bad += 1
            first_bad = first_bad or f"{place}:{line}: must have {', '.join(KEYS)} as numbers, got {text[:60]!r}"
        else:
            rows.append(row)
    notes = [f"{bad} bad row{'s' * (bad > 1)} left out, the first {first_bad}"] if bad else []
    if not rows:
        raise BadLoad(first_bad or f"{place}: has no request")
    stamps, prompt, output = np.array(rows).T
    grid = grid_of(stamps)
    if grid is not None:
        steps = np.round(stamps / grid) + np.random.default_rng(seed).uniform(size=len(stamps))
        order = np.argsort(steps, kind="stable")
        stamps, prompt, output = grid * steps[order], prompt[order], output[order]
        notes.append(f"{place}: its stamps are on a grid of {grid / 1000:g} s: requests were spread within it")
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
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    row = tuple(said.get(key) for key in KEYS)
    match row:
        case (int() | float() as at, int() | float() as prompt, int() | float() as output):
            possible = 0 <= at < 1e14 and 0 <= prompt <= MOST_TOKENS and 0 <= output <= MOST_TOKENS  # noqa: PLR2004
            return (float(at), float(prompt), float(output)) if possible else None
    return None
