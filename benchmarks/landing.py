"""Measures the CPU time of a landing response: from its parsed samples to the decision of its workload.

`python benchmarks/landing.py [--against REVISION]`

With a revision, the tree of that commit is measured alternately in the same run: other processes on the machine slow
both.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from itertools import cycle
from pathlib import Path
from statistics import fmean, median
from time import thread_time

from policy import INTERVAL_S, RING, START, engine_pages, fleet

WORKLOADS = 1_000
LANDINGS = 4_000
ROUNDS = 3
SWEEP_EVERY = 800  # a fifth of 4,000 targets responds in each second
ROOT = Path(__file__).resolve().parent.parent


def landings() -> list[float]:
    """Seconds of CPU time per landing. A sweep follows each second's responses and is not counted."""
    pages = cycle(engine_pages())
    decider, targets = fleet(WORKLOADS, pages)
    now, took = START + 2 * RING * INTERVAL_S, []
    for number, target in zip(range(LANDINGS), cycle(targets), strict=False):
        if number % SWEEP_EVERY == 0:
            now += 1.0
            decider.sweep(now)
        response = [(target, next(pages), now)]
        began = thread_time()
        decider.land_together(response, now)
        took.append(thread_time() - began)
    return took


def measured_in(tree: Path) -> tuple[float, float]:
    """Median and mean microseconds per landing with the code of another tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, __file__, "--one"]
    out = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=True).stdout
    middle, mean = out.split()
    return float(middle), float(mean)


def unpack(revision: str, into: Path) -> None:
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(into, filter="data")


def compare(revision: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder)
        unpack(revision, before)
        rounds = [(measured_in(before), measured_in(ROOT)) for _ in range(ROUNDS)]
    for (old, old_mean), (new, new_mean) in rounds:
        print(
            f"{revision}: median {old:.0f} us, mean {old_mean:.0f} us; "
            f"this tree: median {new:.0f} us, mean {new_mean:.0f} us; "
            f"{old / new:.1f} times faster by the median, {old_mean / new_mean:.1f} by the mean"
        )


if __name__ == "__main__":
    if "--against" in sys.argv:
        compare(sys.argv[sys.argv.index("--against") + 1])
    else:
        took = landings()
        print(f"{1e6 * median(took):.1f} {1e6 * fmean(took):.1f}")
