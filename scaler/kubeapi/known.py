"""Which workloads can be asked about, and by which objects: the census, turned so that an answer is a look-up. Pure.

It is made once per census and never changes. `whole` is whether it is all there is: while the cluster's word is awaited
nobody can say that a workload does not exist.

Worked example: of a census in which `ai/chat` scales Deployment `ai/chat`, `workloads["ai"]` is `(ai/chat,)` and
`scalers[Ref("ai", "Deployment", "chat")]` is `(ai/chat,)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from exporter.cluster.objects import Ref
from exporter.model import WorkloadKey

from ..census import Census

K = TypeVar("K")


class Known(NamedTuple):
    workloads: Mapping[str, tuple[WorkloadKey, ...]]
    scalers: Mapping[Ref, tuple[WorkloadKey, ...]]
    whole: bool


NOTHING = Known({}, {}, whole=False)


def known(census: Census) -> Known:
    keys = sorted(workload.key for workload in census.workloads)
    targets = ((census.targets[key], key) for key in keys if key in census.targets)
    return Known(_grouped((key.namespace, key) for key in keys), _grouped(targets), whole=True)


def _grouped(pairs: Iterable[tuple[K, WorkloadKey]]) -> dict[K, tuple[WorkloadKey, ...]]:
    groups: dict[K, list[WorkloadKey]] = {}
    for group, key in pairs:
        groups.setdefault(group, []).append(key)
    return {group: tuple(keys) for group, keys in groups.items()}
