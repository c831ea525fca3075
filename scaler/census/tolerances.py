"""How small a change the HPA of each workload drops, where that is said: a ratio, for steps up.

KEDA copies `behavior` of the ScaledObject into the HPA that it makes, and a cluster before Kubernetes 1.35 leaves the
tolerance out of what it keeps. So an HPA that is seen has the word, also by saying nothing; a ScaledObject is believed
where its HPA is not seen: RBAC does not show it, or KEDA has not made it yet.

Worked example: the ScaledObject `ai/chat` says tolerance "0". Its HPA is there and says none: the cluster dropped it,
`ai/chat` is not in the result, and the configuration's `hpa_tolerance` holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from exporter.cluster.objects import Hpa, Ref, ScaledObject
from exporter.model import WorkloadKey


def tolerances(
    workloads: Collection[WorkloadKey],
    targets: Mapping[WorkloadKey, Ref],
    scaled: Iterable[ScaledObject],
    hpas: Iterable[Hpa],
) -> dict[WorkloadKey, float]:
    """Of two HPAs for one object Kubernetes obeys neither; here the first by its name is taken."""
    speakers: list[ScaledObject | Hpa] = [*scaled, *sorted(hpas, key=lambda hpa: hpa.ref, reverse=True)]
    said = {each.target: each.behavior.up_tolerance if each.behavior is not None else None for each in speakers}
    found = {key: said.get(target) for key, target in targets.items() if key in workloads}
    return {key: tolerance for key, tolerance in found.items() if tolerance is not None}
