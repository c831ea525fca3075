"""Measures the speed of `tidegate replay`: simulated seconds and requests per second of one core, by policy.

`python benchmarks/replay.py [--quick]`
"""

from __future__ import annotations

import sys
from time import process_time
from typing import Any

from report import show
from timing import Spread

from scaler.replay.columns import Trace
from scaler.replay.policies import parse
from scaler.replay.run import run as replay
from scaler.replay.servers import PROFILES
from scaler.replay.traces.generators import generate

TITLE = "Replaying"
ABOUT = """
`scaler.replay.run`, without reading the trace and without the report, on server profile A; one process, CPU time.
Simulating requests costs per request and per replica. A policy costs per look: `tidegate` looks each 5 s of the load
and then runs the daemon's kernels for one workload, so its requests per second grow with the load's rate, and those of
`static`, which looks once an hour, do not. Compilation is not in it. Repeat with `python benchmarks/replay.py`.
"""

HOUR_S = 3600.0
LOADS = {
    "on and off, 5 per second": ("onoff", {"rate": 5.0, "for": 24 * HOUR_S}),
    "steady, 5 per second": ("diurnal", {"low": 5.0, "high": 5.0, "for": HOUR_S}),
    "steady, 50 per second": ("diurnal", {"low": 50.0, "high": 50.0, "for": HOUR_S}),
}
POLICIES = ("tidegate", "keda-waiting", "static:replicas=16")


def row(load: str, trace: Trace, policy: str, rounds: int) -> dict[str, Any]:
    took = []
    for _ in range(rounds + 1):  # the first is to warm up
        begun = process_time()
        replay(trace, PROFILES["A"], parse(policy).baseline())
        took.append(process_time() - begun)
    return {
        "policy": policy.partition(":")[0],
        "load": load,
        "requests": len(trace.at),
        "requests per second": Spread.of(len(trace.at) / each for each in took[1:]),
        "µs per simulated second": Spread.of(each / trace.span_s * 1e6 for each in took[1:]),
    }


def run(quick: bool = False) -> list[dict[str, Any]]:
    rounds = 1 if quick else 5
    traces = {name: generate(kind, numbers, 0).load for name, (kind, numbers) in LOADS.items()}
    return [row(name, trace, policy, rounds) for policy in POLICIES for name, trace in traces.items()]


if __name__ == "__main__":
    show(run("--quick" in sys.argv))
