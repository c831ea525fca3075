"""Measures the cost of a daemon: its memory, and the time from start to ready.

`python benchmarks/process.py [--quick]`
"""

from __future__ import annotations

import sys
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

from daemon import Running, running
from report import show
from timing import Spread

TITLE = "The process"
ABOUT = """
`python -m scaler run` as a separate process. Cold is an empty `NUMBA_CACHE_DIR`: every kernel is compiled, as in a
new pod without a kept cache; warm finds the cache of the run before. "Listening" is the first answer of `/livez`, when
GetMetricSpec works too; "ready" is the first 200 of `/readyz`, when the kernels are compiled and the first
sweep is done. Memory is resident (VmRSS, Linux): one second after ready with a single workload and a single page, and
after three rounds of scrapes of 200 pages of about 30 KiB (50 workloads of 4 pods). Repeat with
`python benchmarks/process.py`.
"""

WORKLOADS, PODS = 50, 4
INTERVAL_S = 5.0


def starts(rounds: int) -> list[Running]:
    """One cold start and then warm ones, on a separate cache."""
    with TemporaryDirectory() as cache:
        daemons = []
        for _ in range(1 + rounds):
            with running(workloads=1, numba_cache=cache) as daemon:
                daemons.append(daemon)
        return daemons


def resident_mib(workloads: int, pods: int, after_s: float) -> float:
    with running(workloads=workloads, pods=pods) as daemon:
        sleep(after_s)
        return daemon.resident_mib()


def run(quick: bool = False) -> list[dict[str, Any]]:
    cold, warm = [], []
    for _ in range(1 if quick else 2):
        first, *warm_starts = starts(rounds=3)
        cold.append(first)
        warm += warm_starts
    rows = []
    for name, daemons in (("cold", cold), ("warm", warm)):
        rows.append({"what": f"start to listening, {name}", "unit": "s", "": Spread.of(d.listening_s for d in daemons)})
        rows.append({"what": f"start to ready, {name}", "unit": "s", "": Spread.of(d.ready_s for d in daemons)})
    rounds = 1 if quick else 2
    small = Spread.of(resident_mib(1, 1, 1.0) for _ in range(rounds))
    large = Spread.of(resident_mib(WORKLOADS, PODS, 3 * INTERVAL_S) for _ in range(rounds))
    rows.append({"what": "resident memory, 1 page", "unit": "MiB", "": small})
    rows.append({"what": f"resident memory, {WORKLOADS * PODS} pages", "unit": "MiB", "": large})
    return rows


if __name__ == "__main__":
    show(run("--quick" in sys.argv))
