"""Tidegate's reading of NVML beside nvidia-smi's, on this machine's GPUs; where there is none, it says so.

`python benchmarks/nvml.py [--quick] [-- COMMAND…]`

COMMAND is run meanwhile as the load, for example `-- gpu_burn 60`, or a server under test. Without one, whatever works
on the GPUs is what is measured. Needs `nvidia-ml-py` and `nvidia-smi`.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isnan, nan
from time import perf_counter, sleep, time
from typing import Any, NamedTuple

from report import show
from timing import Spread

from exporter.model import Gpu, Quantity, Samples
from exporter.sources.nvml import NotInstalled, Nvml, installed

TITLE = "NVML beside nvidia-smi"
ABOUT = """
Every second both are asked, one after the other, about the same GPUs: `exporter.sources.nvml`, and
`nvidia-smi --query-gpu … --format=csv`. "apart" is the difference of two such readings. Utilisation and power are
averages over up to a second, and nvidia-smi itself takes a good part of one to start, so that under a load that changes
they are of two different moments. Engine activity is by GPM (Hopper and later), which that query does not have.
Repeat with `python benchmarks/nvml.py -- COMMAND`, where COMMAND is a load.
"""

MIB = 2.0**20
# What is compared: the name of nvidia-smi's column, and its unit in ours.
COMPARED = {
    Quantity.GPU_UTILIZATION: ("utilization.gpu", 0.01, "ratio"),
    Quantity.GPU_MEMORY_USED: ("memory.used", MIB, "MiB"),
    Quantity.GPU_MEMORY_TOTAL: ("memory.total", MIB, "MiB"),
    Quantity.GPU_POWER: ("power.draw", 1.0, "W"),
    Quantity.GPU_TEMPERATURE: ("temperature.gpu", 1.0, "degrees C"),
}
SHOWN = {"MiB": 1.0 / MIB}
WARM_UP_S = 3.0

Said = Mapping[tuple[str, Quantity], float]


class Pair(NamedTuple):
    ours: Said
    theirs: Said
    took_s: float


def nvidia_smi(path: str) -> Said:
    """What nvidia-smi says by GPU, in our units; NaN where it says "[N/A]"."""
    columns = ",".join(["uuid", *(name for name, _, _ in COMPARED.values())])
    command = [path, f"--query-gpu={columns}", "--format=csv,noheader,nounits"]
    page = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return {key: value for line in page.splitlines() for key, value in _line(line).items()}


def _line(line: str) -> Said:
    uuid, *cells = (cell.strip() for cell in line.split(","))
    units = (unit for _, unit, _ in COMPARED.values())
    return {(uuid, quantity): _number(cell) * unit for quantity, cell, unit in zip(COMPARED, cells, units, strict=True)}


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return nan


def by_gpu(samples: Samples) -> Said:
    """Whole GPUs only: nvidia-smi's query knows no MIG instances."""
    return {
        (subject.uuid, quantity): float(samples.column(quantity)[row])
        for row, subject in enumerate(samples.subjects)
        for quantity in samples.quantities
        if isinstance(subject, Gpu) and subject.instance is None
    }


async def pairs(path: str, count: int) -> list[Pair]:
    """So many readings of both, a second apart. Raises SystemExit where NVML does not answer."""
    nvml = Nvml(installed(), lambda _: None, timeout_s=30.0)
    try:
        seen = []
        for _ in range(count + 1):
            begun = perf_counter()
            samples = await nvml.samples(time())
            took_s = perf_counter() - begun
            if not isinstance(samples, Samples):
                raise SystemExit(samples.detail)
            seen.append(Pair(by_gpu(samples), nvidia_smi(path), took_s))
            await asyncio.sleep(max(0.0, 1.0 - (perf_counter() - begun)))
        return seen[1:]  # the first has opened the driver, and knows no activity yet
    finally:
        await nvml.close()


def rows_of(seen: Sequence[Pair]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, uuid in enumerate(dict.fromkeys(uuid for uuid, _ in seen[0].theirs)):
        for quantity, (name, _, unit) in COMPARED.items():
            shown = SHOWN.get(unit, 1.0)
            both = [(pair.ours.get((uuid, quantity), nan), pair.theirs[uuid, quantity]) for pair in seen]
            both = [(ours * shown, theirs * shown) for ours, theirs in both]
            rows.append(
                {
                    "GPU": str(number),
                    "what": name,
                    "unit": unit,
                    "tidegate": _spread([ours for ours, _ in both]),
                    "nvidia-smi": _spread([theirs for _, theirs in both]),
                    "apart": _spread([abs(ours - theirs) for ours, theirs in both]),
                }
            )
        engine = _spread([pair.ours.get((uuid, Quantity.GPU_ENGINE_ACTIVE), nan) for pair in seen])
        rows.append({"GPU": str(number), "what": "engine activity (GPM)", "unit": "ratio", "tidegate": engine})
    rows.append({"what": "one reading", "unit": "ms", "tidegate": Spread.of(1e3 * pair.took_s for pair in seen)})
    return rows


def _spread(values: Sequence[float]) -> Spread | None:
    known = [value for value in values if not isnan(value)]
    return Spread.of(known) if known else None


def missing() -> str | None:
    """Why nothing can be measured here, or None."""
    if shutil.which("nvidia-smi") is None:
        return "no GPU at hand: nvidia-smi is not on the PATH"
    try:
        installed()
    except NotInstalled as error:
        return str(error)
    return None


def run(quick: bool = False, load: Sequence[str] = ()) -> list[dict[str, Any]]:
    if (reason := missing()) is not None:
        return [{"what": "not measured", "why": reason}]
    path = shutil.which("nvidia-smi") or ""
    count = 5 if quick else 30
    if not load:
        return rows_of(asyncio.run(pairs(path, count)))
    with subprocess.Popen(load) as busy:
        try:
            sleep(WARM_UP_S)
            if busy.poll() is not None:
                raise SystemExit(f"the load has ended already, with status {busy.returncode}: {' '.join(load)}")
            return rows_of(asyncio.run(pairs(path, count)))
        finally:
            busy.terminate()
            with suppress(subprocess.TimeoutExpired):
                busy.wait(10.0)
            busy.kill()


if __name__ == "__main__":
    own = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    show(run("--quick" in own, sys.argv[len(own) + 2 :]))
