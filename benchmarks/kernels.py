"""How long one tick's arithmetic takes: each kernel over full rings of 64 values, beside its NumPy twin.

    python benchmarks/kernels.py

Times are the best of several calls, in milliseconds; a tick is one second. The twins, a Python loop over rows, are
timed on 200 rows and scaled up. Compilation is not in it: importing `scaler.kernels` compiles (first line).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

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


def best_ms(function: Callable[..., Any], given: tuple[Any, ...], calls: int) -> float:
    took = []
    for _ in range(calls):
        begun = perf_counter()
        function(*given)
        took.append(perf_counter() - begun)
    return 1e3 * min(took)


def run() -> list[dict[str, Any]]:
    begun = perf_counter()
    from scaler import kernels  # noqa: PLC0415 - the import is what is measured
    from scaler.kernels import twins  # noqa: PLC0415

    results: list[dict[str, Any]] = [{"name": "import", "ms": round(1e3 * (perf_counter() - begun), 1)}]
    for name in kernels.__all__:
        twin_ms = best_ms(getattr(twins, name), arguments(name, TWIN_ROWS), 3) / TWIN_ROWS
        for rows in ROWS:
            ms = best_ms(getattr(kernels, name), arguments(name, rows), 10)
            results.append({"name": name, "rows": rows, "ms": round(ms, 3), "twin_ms": round(twin_ms * rows, 1)})
    return results


if __name__ == "__main__":
    for result in run():
        print(json.dumps(result))
