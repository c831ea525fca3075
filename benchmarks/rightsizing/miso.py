"""Reads the measurements of MISO: speeds of training jobs on MIG slices and under MPS, and its trace of jobs.

Data: github.com/boringlee24/socc22-miso (MIT licence; Li et al., SoCC 2022), one A100-40GB. `fetch` clones it.

- `mps/models/logs/mig/SLICE_JOB.json`: seconds of each batch, by epoch. A job is a model family with a batch size.
- `unet/input_data.npy`, `target_data.npy`: shape (14000, 3, 7). A matrix is one mix of up to 7 jobs (the rest are a
  dummy); a column is a job. Input: batch times at active thread percentages 100, 50 and 14. Target: on 7g, 4g and 3g.
  Each column is divided by its largest value. The target identifies the job, because it is derived from the cells.

Worked example: `cells(folder)["resnet512"]["3g.20gb"]` is 0.653: its batch takes 0.0369 s on 7g.40gb and 0.0565 s here.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np

REPOSITORY = "https://github.com/boringlee24/socc22-miso"
WHOLE = "7g.40gb"
PERCENTAGES = (100, 50, 14)
_FILE = re.compile(r"(\d)g\.(\d+)gb_(\w+?)_train(\d+)\.json")
_DUMMY = "dummy"


class TraceJob(NamedTuple):
    """name: of the job. arrival: seconds. work: seconds on a whole GPU."""

    name: str
    arrival: float
    work: float


def fetch(folder: Path) -> None:
    """Clones the repository (MIT licence, 60 MB) into `folder`."""
    subprocess.run(["git", "clone", "--depth", "1", REPOSITORY, str(folder)], check=True)


def family(job: str) -> str:
    return job.rstrip("0123456789")


def batch_times(folder: Path) -> dict[str, dict[str, float]]:
    """Mean seconds per batch by job and profile, without the first batch (as MISO's own simulator has it)."""
    times: dict[str, dict[str, float]] = {}
    for path in sorted((folder / "mps/models/logs/mig").glob("*.json")):
        found = _FILE.fullmatch(path.name)
        if found is None or found[3] == _DUMMY:
            continue
        batches = [seconds for epoch in json.loads(path.read_text()).values() for seconds in epoch]
        times.setdefault(found[3] + found[4], {})[f"{found[1]}g.{found[2]}gb"] = float(np.mean(batches[1:]))
    return times


def cells(folder: Path) -> dict[str, dict[str, float]]:
    """Speed by job and profile; a profile that the job does not fit is absent. 7g.40gb is 1."""
    return {
        job: {profile: times[WHOLE] / seconds for profile, seconds in times.items()}
        for job, times in batch_times(folder).items()
    }


def mps_profiles(folder: Path) -> dict[str, dict[int, float]]:
    """Speed by job and percentage, relative to 100 %, the median over its mixes with six dummies and no other job."""
    times = batch_times(folder)
    jobs = sorted(times)
    targets = np.array([[times[job][profile] for profile in (WHOLE, "4g.20gb", "3g.20gb")] for job in jobs])
    targets /= targets.max(axis=1, keepdims=True)
    inputs, outputs = (
        np.load(folder / "unet" / name).transpose(0, 2, 1) for name in ("input_data.npy", "target_data.npy")
    )
    # A dummy's times are the only ones with exactly 8/9 on 7g and on 3g.
    dummy = np.abs(outputs - [8 / 9, 1.0, 8 / 9]).max(axis=2) < 1e-3
    alone = dummy.sum(axis=1) == dummy.shape[1] - 1
    columns, truths = inputs[alone][~dummy[alone]], outputs[alone][~dummy[alone]]
    distances = np.abs(truths[:, None] - targets[None]).max(axis=2)
    numbers = distances.argmin(axis=1)
    if distances.min(axis=1).max() > 0.01:
        raise ValueError(f"unet/target_data.npy: a column of no job, distance {distances.min(axis=1).max():.3f}")
    return {
        job: {
            percent: float(np.median(columns[numbers == number, 0] / columns[numbers == number, column]))
            for column, percent in enumerate(PERCENTAGES)
            if percent < 100
        }
        for number, job in enumerate(jobs)
    }


def trace(folder: Path) -> list[tuple[str, float]]:
    """Names and seconds of work of the simulator's 100 jobs, by number."""
    models = json.loads((folder / "mps/scheduler/simulator/job_models.json").read_text())
    work = json.loads((folder / "mps/scheduler/trace/trace_100.json").read_text())
    return [(models[number].replace("_train", ""), float(work[number])) for number in models]


def static_partitions(folder: Path) -> list[tuple[int, ...]]:
    """MISO's 18 partitions: compute slices of each instance."""
    codes = json.loads((folder / "mps/scheduler/partition_code.json").read_text())
    return [tuple(sorted(codes[code], reverse=True)) for code in codes]
