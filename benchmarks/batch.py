"""Compares `slo: {start_within}` with KEDA's queue length at thresholds set by hand, over generated queues of jobs.

    python benchmarks/batch.py [--within 300] [LOAD ...]

The jobs of a day on profile C of `tidegate replay`: one job at a time per replica, which starts within 45 s. Tidegate
reads the length of the queue alone. A flap is a change that takes back the last one within 300 s; `least` are the
GPU-hours of the jobs themselves.

Worked example: `python benchmarks/batch.py hourly` prints a table of four rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace

from report import Row, table

from scaler.replay.policies import parse
from scaler.replay.run import run, score
from scaler.replay.servers import PROFILES, ReplaySlo
from scaler.replay.traces.generators import DAY_S, generate

JOB = {"prompt": 1.0, "for": DAY_S}
LOADS = {
    "hourly": ("50 jobs of 60 s each hour", "batch", {"jobs": 50.0, "output": 60.0}),
    "short": ("200 jobs of 20 s each hour", "batch", {"jobs": 200.0, "output": 20.0}),
    "onoff": ("on and off, 6 jobs of 60 s a minute", "onoff", {"rate": 0.1, "output": 60.0}),
    "day": ("a day's wave to 12 jobs of 60 s a minute", "diurnal", {"low": 0.01, "high": 0.2, "output": 60.0}),
    "stream": ("a day's wave to 120 jobs of 5 s a minute", "diurnal", {"low": 0.1, "high": 2.0, "output": 5.0}),
    "long": ("on and off, a job of 600 s each 100 s", "onoff", {"rate": 0.01, "output": 600.0, "on": 7200.0}),
}
POLICIES = {
    "`start_within`": "tidegate:max=64",
    **{f"KEDA, length {length}": f"keda-waiting:threshold={length},min=0,max=64" for length in (1, 5, 10)},
}


def rows(names: Sequence[str], within_s: float) -> Iterator[Row]:
    profile = PROFILES["C"]
    profile = replace(profile, slo=ReplaySlo(within_s + profile.server.step, 0.0))
    for name in names:
        about, kind, numbers = LOADS[name]
        load = generate(kind, {**JOB, **numbers}, seed=0).load
        for label, policy in POLICIES.items():
            one = score(run(load, profile, parse(policy).baseline()))
            yield {
                "jobs": about,
                "policy": label,
                "in time": f"{one.slo_met_ratio:.2%}",
                "GPU-hours": one.gpu_hours,
                "least": float(load.output.sum()) * profile.gpus / 3600.0,
                "flaps a day": one.flaps_per_day,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=", ".join(LOADS))
    parser.add_argument("--within", type=float, default=300.0, help="start_within, seconds")
    args = parser.parse_args()
    print(table(list(rows(args.loads or list(LOADS), args.within))))


if __name__ == "__main__":
    main()
