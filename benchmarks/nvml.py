"""Compares Tidegate's NVML readings with nvidia-smi's on this machine's GPUs. Without a GPU it says so.

`python benchmarks/nvml.py [--quick] [-- COMMAND…]`

COMMAND runs meanwhile as the load, for example `-- gpu_burn 60`, or a server under test. Without one, the present load
is measured. Needs `nvidia-ml-py` and `nvidia-smi`.
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
Every second both are queried, one after the other, about the same GPUs: `exporter.sources.nvml`, and
`nvidia-smi --query-gpu … --format=csv`. "apart" is the difference of two such readings. Utilisation and power are
averages over up to a second, and nvidia-smi takes a good part of one to start, so under a changing load the readings
are of different moments. Engine activity comes from GPM (Hopper and later), which that query lacks.
Repeat with `python benchmarks/nvml.py -- COMMAND`, where COMMAND is a load.
"""

MIB = 2.0**20
# The compared values: the name of nvidia-smi's column, and the factor to its unit.
COMPARED = {
    Quantity.GPU_UTILIZATION: ("utilization.gpu", 0.01, "ratio"),
    Quantity.GPU_MEMORY_USED: ("memory.used", MIB, "MiB"),
    Quantity.GPU_MEMORY_TOTAL: ("memory.total", MIB, "MiB"),
    Quantity.GPU_POWER: ("power.draw", 1.0, "W"),
    Quantity.GPU_TEMPERATURE: ("temperature.gpu", 1.0, "degrees C"),
}
SHOWN = {"MiB": 1.0 / MIB}
WARM_UP_S = 3.0

Reading = Mapping[tuple[str, Quantity], float]


class Pair(NamedTuple):
    tidegate: Reading
    nvidia_smi_values: Reading
    took_s: float


def nvidia_smi(path: str) -> Reading:
    """nvidia-smi's values by GPU, in our units; NaN for "[N/A]"."""
    columns = ",".join(["uuid", *(name for name, _, _ in COMPARED.values())])
    command = [path, f"--query-gpu={columns}", "--format=csv,noheader,nounits"]
    page = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return {key: value for line in page.splitlines() for key, value in _line(line).items()}


def _line(line: str) -> Reading:
    uuid, *cells = (cell.strip() for cell in line.split(","))
    units = (unit for _, unit, _ in COMPARED.values())
    return {(uuid, quantity): _number(cell) * unit for quantity, cell, unit in zip(COMPARED, cells, units, strict=True)}


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return nan


def by_gpu(samples: Samples) -> Reading:
    """Whole GPUs only: nvidia-smi's query has no MIG instances."""
    return {
        (subject.uuid, quantity): float(samples.column(quantity)[row])
        for row, subject in enumerate(samples.subjects)
        for quantity in samples.quantities
        if isinstance(subject, Gpu) and subject.instance is None
    }


async def pairs(path: str, count: int) -> list[Pair]:
    """That many pairs of readings, a second apart. Raises SystemExit if NVML does not respond."""
    nvml = Nvml(installed(), lambda _: None, timeout_s=30.0)
    try:
        pairs_read = []
        for _ in range(count + 1):
            begun = perf_counter()
            samples = await nvml.samples(time())
            took_s = perf_counter() - begun
            if not isinstance(samples, Samples):
                raise SystemExit(samples.detail)
            pairs_read.append(Pair(by_gpu(samples), nvidia_smi(path), took_s))
            await asyncio.sleep(max(0.0, 1.0 - (perf_counter() - begun)))
        return pairs_read[1:]  # the first has opened the driver, and has no activity yet
    finally:
        await nvml.close()


def rows_of(pairs_read: Sequence[Pair]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, uuid in enumerate(dict.fromkeys(uuid for uuid, _ in pairs_read[0].nvidia_smi_values)):
        for quantity, (name, _, unit) in COMPARED.items():
            shown = SHOWN.get(unit, 1.0)
            both = [
                (pair.tidegate.get((uuid, quantity), nan), pair.nvidia_smi_values[uuid, quantity])
                for pair in pairs_read
            ]
            both = [(tidegate * shown, nvidia_smi_values * shown) for tidegate, nvidia_smi_values in both]
            rows.append(
                {
                    "GPU": str(number),
                    "what": name,
                    "unit": unit,
                    "tidegate": _spread([tidegate for tidegate, _ in both]),
                    "nvidia-smi": _spread([nvidia_smi_values for _, nvidia_smi_values in both]),
                    "apart": _spread([abs(tidegate - nvidia_smi_values) for tidegate, nvidia_smi_values in both]),
                }
            )
        engine = _spread([pair.tidegate.get((uuid, Quantity.GPU_ENGINE_ACTIVE), nan) for pair in pairs_read])
        rows.append({"GPU": str(number), "what": "engine activity (GPM)", "unit": "ratio", "tidegate": engine})
    rows.append({"what": "one reading", "unit": "ms", "tidegate": Spread.of(1e3 * pair.took_s for pair in pairs_read)})
    return rows


def _spread(values: Sequence[float]) -> Spread | None:
    present = [value for value in values if not isnan(value)]
    return Spread.of(present) if present else None


def missing() -> str | None:
    """Why measuring is impossible here, or None."""
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
    arguments = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    show(run("--quick" in arguments, sys.argv[len(arguments) + 2 :]))
