"""Pages of GPUs: what of each is wholly one workload's, as the columns of a slot.

It remembers of each page what the page itself forgets now and then (the pod's label). Whose a pod is, others know;
what is shared is nobody's (law 9), and utilisation stands in for the idle verdict alone: one request pegs it.

Worked example: a node's page shows two GPUs of one pod of `ai/chat`, 40 % and 80 % active. The share of `ai/chat` is
GPU_SUM 1.2, GPU_COUNT 2, GPU_BUSIEST 0.8, GPU_PODS 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from exporter.attribution import Labels, Owners, Share, assign
from exporter.model import Floats, Quantity, Samples, Target, WorkloadKey

from .slots import Column


class Reading(NamedTuple):
    """values: shape (len(Column),), NaN where the page does not say. at: POSIX seconds of its oldest part."""

    values: Floats
    at: float


class GpuShares:
    """What pages of GPUs say of workloads, and what of each page is remembered until the next."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._labels: dict[Target, Labels] = {}

    def read(self, target: Target, samples: Samples, at: float) -> Mapping[WorkloadKey, Reading]:
        """What a page says of each workload that has a GPU of its own on it. `at`: POSIX seconds of receipt."""
        samples = self._labels.setdefault(target, Labels()).recall(samples, self._owners, at)
        shares = assign(samples, self._owners)
        return {workload: _reading(samples, share, at) for workload, share in shares.items() if share.own}

    def forget(self, target: Target) -> None:
        """The page will not be asked again."""
        self._labels.pop(target, None)

    def adopt(self, other: GpuShares) -> None:
        """The same pages go on being asked: what is remembered of them stays. Whose pods are may be told anew."""
        self._labels = other._labels


def _reading(samples: Samples, share: Share, at: float) -> Reading:
    own = np.asarray(share.own)
    engine = samples.column(Quantity.GPU_ENGINE_ACTIVE)[own]
    busy = np.where(np.isnan(engine), samples.column(Quantity.GPU_UTILIZATION)[own], engine)
    pods = {pod for index in share.own for pod in getattr(samples.subjects[index], "pods", ())}
    values = np.full(len(Column), np.nan)
    values[Column.GPU_SUM] = np.nan if np.isnan(engine).all() else float(np.nansum(engine))
    values[Column.GPU_COUNT] = float((~np.isnan(engine)).sum())
    values[Column.GPU_BUSIEST] = _largest(busy)
    values[Column.GPU_PODS] = float(len(pods))
    return Reading(values, min(float(samples.at[own].min()), at))


def _largest(values: Floats) -> float:
    said = values[~np.isnan(values)]
    return float(said.max()) if len(said) else float("nan")
