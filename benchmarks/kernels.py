"""Measures each kernel of `scaler.signals.kernels` over full rings of 64 values.

`python benchmarks/kernels.py [--quick]`
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from report import show
from timing import Spread, seconds

from scaler.signals import kernels

TITLE = "Kernels"
ABOUT = """
One call of each kernel over all series, each a full, wrapped ring of 64 values 15 s apart with one value in twenty
missing; one process, one thread. Compilation is not in it. Repeat with `python benchmarks/kernels.py`.
"""

LENGTH = 64
ROWS = (1_000, 10_000)
NOW = 1.7e9


def rings(rows: int) -> tuple[Any, Any, Any]:
    """Full, wrapped rings: 15 s apart with jitter, one value in twenty a gap."""
    chance = np.random.default_rng(7)
    times = NOW - 15.0 * np.arange(LENGTH, 0, -1.0) + chance.uniform(0.0, 5.0, (rows, LENGTH))
    values = np.where(chance.random((rows, LENGTH)) < 0.05, np.nan, chance.gamma(2.0, 5.0, (rows, LENGTH)))
    return np.roll(times, 20, axis=1), np.roll(values, 20, axis=1), np.full(rows, 20)


# The parameters of each kernel, in seconds, for every row.
PARAMETERS_S = {"ewma_fast_slow": (60.0, 60.0), "counter_rate": (600.0,)}


def arguments(name: str, rows: int) -> tuple[Any, ...]:
    return *rings(rows), *(np.full(rows, value) for value in PARAMETERS_S[name]), NOW


def milliseconds(function: Callable[..., Any], given: tuple[Any, ...], rounds: int) -> Spread:
    return seconds(lambda: function(*given), rounds=rounds, round_s=0.02).times(1e3)


def run(quick: bool = False) -> list[dict[str, Any]]:
    results = []
    for name in PARAMETERS_S:
        for rows in ROWS[:1] if quick else ROWS:
            ms = milliseconds(getattr(kernels, name), arguments(name, rows), 7)
            results.append({"kernel": name, "series": rows, "ms": ms})
    return results


if __name__ == "__main__":
    show(run("--quick" in sys.argv))
