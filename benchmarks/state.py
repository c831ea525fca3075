"""Measures checkpoints: copied beside the ticks, packed and written in a thread, read and restored at a start.

`python benchmarks/state.py [--quick]`
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from policy import ENGINE_PAGE, INTERVAL_S, RING, START
from report import show
from timing import objects_set_aside, seconds

from exporter.catalog import Reader
from exporter.model import Role, Target, WorkloadKey
from exporter.textformat import parse
from scaler.columns import State
from scaler.engine.checkpoint_format import pack, unpack
from scaler.engine.checkpoint_store import Directory
from scaler.engine.decider import Decider
from scaler.policy.columns import Signal, Spec
from scaler.workloads.spec import WorkloadSpec

TITLE = "Checkpoints"
ABOUT = """
One process, one thread. Workloads of two engine pages each, half of them busy, half idle, all with full windows (128
values) of requests, KV-cache use and requests finished; without GPUs. "Copied" delays other tasks: the daemon copies
1,000 workloads at a time and lets other tasks run between. A thread packs and writes (with fsync, to this machine's
temporary directory); reading and restoring happen once, at a start. MB are 10^6 bytes. Repeat with
`python benchmarks/state.py`.
"""

PODS = 2
SIZES = (1_000, 10_000)
SPEC = Spec(0, 8, ((Signal.WORK, 16.0), (Signal.KV_CACHE, 0.9)))


def windows(workloads: int) -> dict[str, Any]:
    """Rings as after a day: whole numbers, ratios of four digits, rising counters, GPUs unknown."""
    chance = np.random.default_rng(7)
    shape = workloads, RING
    load = np.where(np.arange(workloads) % 2 == 0, chance.uniform(0.0, 20.0, workloads), 0.0)[:, None]
    work = chance.poisson(load, shape).astype(float)
    times = START - INTERVAL_S * np.arange(RING, 0, -1) + chance.uniform(0.0, 0.1, shape)
    columns = {"times": times, "work": work, "kv_cache": np.round(work / 40.0, 4), "gpu_engine": np.full(shape, np.nan)}
    columns |= {"finished": np.cumsum(work, axis=1), "head": np.zeros(workloads, dtype=np.int64)}
    return {f"windows.{name}": column for name, column in columns.items()}


def fleet(workloads: int) -> Decider:
    """A decider with a response of every target and full rings."""
    keys = [WorkloadKey(f"team-{number % 50}", f"chat-{number}") for number in range(workloads)]
    decider = Decider([WorkloadSpec(key, SPEC) for key in keys], interval_s=INTERVAL_S, fresh_intervals=3.0)
    page = Reader("vllm").read(parse(ENGINE_PAGE), START)
    for number, key in enumerate(keys):
        decider.listed(key, PODS)
        for pod in range(PODS):
            target = Target(f"http://10.0.{pod}.{number}:8000/metrics", "vllm", Role.PODS, key)
            decider.land(target, page, START, START)
    everyone = np.arange(workloads)
    decider.take(windows(workloads), everyone, everyone)
    decider.sweep(START)
    return decider


def go_on(plans: tuple[WorkloadSpec, ...], state: State) -> None:
    Decider(plans, interval_s=INTERVAL_S, fresh_intervals=3.0).restore(state, START + 5.0)


def run(quick: bool = False) -> list[dict[str, Any]]:
    rows = []
    for workloads in SIZES[:1] if quick else SIZES:
        decider = fleet(workloads)
        state = decider.state(START)
        packed = pack(state)
        arrays = [*state.columns.values(), *(column for table in state.tables.values() for column in table.values())]
        with objects_set_aside(), TemporaryDirectory() as folder:
            calls = {
                "copied, 1,000 workloads": partial(decider.state, START, slice(1_000)),
                "packed": partial(pack, state),
                "packed and written": partial(Directory(Path(folder)).write, [state]),
                "unpacked": partial(unpack, packed),
                "restored": partial(go_on, decider.plans, state),
            }
            rows += [
                {"what": what, "workloads": workloads, "ms": seconds(call, rounds=5).times(1e3)}
                for what, call in calls.items()
            ]
        rows[-5] |= {"MB remembered": sum(array.nbytes for array in arrays) / 1e6, "MB packed": len(packed) / 1e6}
    return rows


if __name__ == "__main__":
    show(run("--quick" in sys.argv))
