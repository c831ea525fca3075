"""Simulates the GPUs as DCGM samples them: activity, power, temperature and memory at the last collection.

Like DCGM, it collects only every interval; between two collections readings do not change.

Worked example: a replica that worked 5 of the last 10 seconds reads engine_active 0.5, and GPU_UTIL 100, because some
kernel ran whenever DCGM sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import NAMESPACE_DNS, uuid5

from .cluster import SimulatedReplica

GPUS_PER_NODE = 8
# An A100-80 has 81,920 MiB. vLLM takes nine tenths of what the driver leaves for itself and keeps it.
_MEMORY_MIB, _RESERVED_MIB, _SERVING_MIB, _LOADING_MIB = 81_920, 663, 73_128, 15_316
_IDLE_W, _RESIDENT_W, _BUSY_W = 62.0, 71.0, 338.0


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    """number: over all nodes. index: in its node."""

    number: int
    index: int
    hostname: str
    uuid: str


@dataclass(frozen=True, slots=True)
class DcgmReading:
    """Values in DCGM's units: MiB, mJ, percent; `engine_active` is a ratio."""

    temperature_c: float = 29.0
    power_w: float = _IDLE_W
    energy_mj: float = 0.0
    utilization_percent: float = 0.0
    engine_active: float = 0.0
    used_mib: int = 0
    reserved_mib: int = _RESERVED_MIB

    @property
    def free_mib(self) -> int:
        return _MEMORY_MIB - self.reserved_mib - self.used_mib


class SimulatedGpus:
    def __init__(self, count: int, now: float) -> None:
        self.gpus = tuple(_gpu(number) for number in range(count))
        self.readings = [DcgmReading() for _ in self.gpus]
        self.nodes = tuple(dict.fromkeys(gpu.hostname for gpu in self.gpus))
        self._at = now
        self._busy_s: dict[str, float] = {}  # by pod, at the last collection

    def collect(self, pods: Sequence[SimulatedReplica], now: float) -> None:
        """Samples all GPUs."""
        elapsed_s = now - self._at
        if elapsed_s <= 0.0:
            return
        by_gpu = {pod.gpu: pod for pod in pods}
        busy_s = {pod.name: pod.engine.busy_s(now) for pod in pods}
        for gpu in self.gpus:
            pod = by_gpu.get(gpu.number)
            active = 0.0 if pod is None else (busy_s[pod.name] - self._busy_s.get(pod.name, 0.0)) / elapsed_s
            used_mib = 0 if pod is None else (_SERVING_MIB if pod.ready_at <= now else _LOADING_MIB)
            before = self.readings[gpu.number]
            self.readings[gpu.number] = _reading(before, min(1.0, active), used_mib, elapsed_s)
        self._busy_s, self._at = busy_s, now

    def of_node(self, hostname: str) -> list[tuple[SimulatedGpu, DcgmReading]]:
        return [(gpu, self.readings[gpu.number]) for gpu in self.gpus if gpu.hostname == hostname]


def _gpu(number: int) -> SimulatedGpu:
    node, index = divmod(number, GPUS_PER_NODE)
    hostname = f"gpu-node-{node + 1}"
    return SimulatedGpu(number, index, hostname, f"GPU-{uuid5(NAMESPACE_DNS, f'{index}.{hostname}.demo')}")


def _reading(before: DcgmReading, active: float, used_mib: int, elapsed_s: float) -> DcgmReading:
    power_w = _BUSY_W * active + (_RESIDENT_W if used_mib else _IDLE_W) * (1.0 - active)
    return DcgmReading(
        temperature_c=29.0 + 36.0 * active + (4.0 if used_mib else 0.0),
        power_w=power_w,
        energy_mj=before.energy_mj + power_w * elapsed_s * 1000.0,
        utilization_percent=100.0 if active > 0.0 else 0.0,
        engine_active=active,
        used_mib=used_mib,
    )
