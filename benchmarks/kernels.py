"""How long one tick's arithmetic takes: each kernel over full rings of 64 values, beside its NumPy twin.

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
from scaler.signals.kernels import twins

TITLE = "Kernels"
ABOUT = """
One call of each kernel over all series, each a full, wrapped ring of 64 values 15 s apart with one value in twenty
missing; one process, one thread. The twin is the same in NumPy and plain Python, row by row: it is what the kernels
are tested against, and is timed on 200 rows and scaled up. Compilation is not in it. Repeat with
`python benchmarks/kernels.py`.
"""

LENGTH = 64
ROWS = (1_000, 10_000)
TWIN_ROWS = 200
NOW = 1.7e9


def rings(rows: int) -> tuple[Any, Any, Any]:
    """Full, wrapped rings: 15 s apart with jitter, one value in twenty a gap."""
    chance = np.random.default_rng(7)
    times = NOW - 15.0 * np.arange(LENGTH, 0, -1.0) + chance.uniform(0.0, 5.0, (rows, LENGTH))
    values = np.where(chance.random((rows, LENGTH)) < 0.05, np.nan, chance.gamma(2.0, 5.0, (rows, LENGTH)))
    return np.roll(times, 20, axis=1), np.roll(values, 20, axis=1), np.full(rows, 20)


def arguments(name: str, rows: int) -> tuple[Any, ...]:
    one_minute, median = np.full(rows, 60.0), np.full(rows, 0.5)
    if name == "hysteresis":
        return np.linspace(0.0, 50.0, rows), np.full(rows, 20.0), 0.2
    parameters = {
        "ewma_fast_slow": (one_minute, one_minute),
        "holt": (one_minute, one_minute),
        "window_quantile": (one_minute * 10, median),
        "window_max": (one_minute * 10,),
        "window_mean": (one_minute * 10,),
        "counter_rate": (one_minute * 10,),
        "last_rise": (),
    }.get(name, (one_minute,))
    return *rings(rows), *parameters, *(() if name == "last_rise" else (NOW,))


def milliseconds(function: Callable[..., Any], given: tuple[Any, ...], rounds: int) -> Spread:
    return seconds(lambda: function(*given), rounds=rounds, round_s=0.02).times(1e3)


def run(quick: bool = False) -> list[dict[str, Any]]:
    results = []
    for name in kernels.__all__:
        twin = milliseconds(getattr(twins, name), arguments(name, TWIN_ROWS), 3).times(1 / TWIN_ROWS)
        for rows in ROWS[:1] if quick else ROWS:
            ms = milliseconds(getattr(kernels, name), arguments(name, rows), 7)
            results.append({"kernel": name, "series": rows, "ms": ms, "twin, ms": twin.median * rows})
    return results


if __name__ == "__main__":
    show(run("--quick" in sys.argv))
