"""How one workload's pages are to be read: what `intake` is told of each. Pure.

Worked example: `Source(WorkloadKey("ai", "chat"), pods=True, queue="llama")` is a workload whose engines are asked
themselves, and of whose pages only the queue of `llama` counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from exporter.model import WorkloadKey


@dataclass(frozen=True, slots=True)
class Source:
    """How one workload's pages are to be read.

    pods:  its engines are asked themselves, so what a gateway repeats of them is not added.
    queue: only this queue of a page (a model's name); None is all of them.
    probe_period: seconds; regular requests that are no further apart are probes'. 0 is: every request counts.
    gpu_quiet: engine activity (ratio) above which a GPU works.
    hold: seconds for which the last known requests of an engine that does not answer count as in hand.
    """

    workload: WorkloadKey
    pods: bool
    queue: str | None = None
    probe_period: float = 0.0
    gpu_quiet: float = 0.0
    hold: float = 300.0
