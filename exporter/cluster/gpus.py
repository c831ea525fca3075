"""How many GPUs a pod asks for, and a node has to give, by resource name.

It knows Kubernetes' arithmetic of containers, init containers and sidecars, and which resource names are GPUs. It
refuses to know which GPU a pod got: that is the device plugin's word, and dcgm-exporter repeats it.

Worked example: a pod whose one init container asks for 2 `nvidia.com/gpu` and whose two containers ask for 1 each
holds 2; with a sidecar (an init container that restarts always) that asks for 1 as well, it holds 3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .fields import NOTHING, amount, mapping, objects, text

# Whole GPUs, time-sliced and MPS-shared ones (gpu.shared), MIG profiles; AMD's GPUs and their partitions (cpx_nps4).
# Not what others count in megabytes or percent: HAMi's nvidia.com/gpumem and nvidia.com/gpucores.
_IS_GPU = re.compile(r"nvidia\.com/(?:gpu(?:\..+)?|mig-.+)|amd\.com/(?:gpu(?:\..+)?|[a-z]px_nps[0-9])").fullmatch


def asked_for(spec: Mapping[str, Any]) -> Mapping[str, int]:
    """GPUs that a pod with this `spec` holds, by resource name. Raises Wrong."""
    begun: dict[str, int] = {}  # held by the sidecars that have started so far
    most: dict[str, int] = {}  # the most that is held while the init containers run
    for container in objects(spec, "initContainers", "spec"):
        wants = _wants(container, "spec.initContainers")
        if text(container, "restartPolicy") == "Always":
            begun = _sum(begun, wants)
            most = _larger(most, begun)
        else:
            most = _larger(most, _sum(begun, wants))
    running = begun
    for container in objects(spec, "containers", "spec"):
        running = _sum(running, _wants(container, "spec.containers"))
    return _larger(most, running) or NOTHING


def named(resources: Mapping[str, Any], place: str) -> dict[str, int]:
    """Those of a list of resources that are GPUs, none of 0. `place`: its path, for errors. Raises Wrong."""
    found = {name: amount(resources, name, place) for name in resources if _IS_GPU(name)}
    return {name: number for name, number in found.items() if number}


def _wants(container: Mapping[str, Any], place: str) -> dict[str, int]:
    resources = mapping(container, "resources", place)
    if not resources:
        return {}
    # Of an extended resource the request must equal the limit, and is set from it if only the limit is written.
    requests = named(mapping(resources, "requests", f"{place}.resources"), f"{place}.resources.requests")
    return requests | named(mapping(resources, "limits", f"{place}.resources"), f"{place}.resources.limits")


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in one.keys() | other.keys()}


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one.keys() | other.keys()}
