"""Converts the GPU resources of pods and nodes to whole GPUs, by model. Pure.

A resource counts devices: whole GPUs, MIG instances, or replicas of a shared GPU. Which model they are, and into how
many replicas a GPU is divided, is in the labels of GPU feature discovery
(github.com/NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery/README.md). Without labels a device is a whole GPU, and
a MIG instance has the slices of its profile.

Worked example: on a node with `nvidia.com/gpu.product=Tesla-T4-SHARED`, `gpu.count=2` and `gpu.replicas=4` a pod with 3
`nvidia.com/gpu` holds 0.75 GPUs of 2. `nvidia.com/mig-3g.20gb` of an A100 is 3/7.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from math import ceil

from exporter.catalog.gpus import FOUR_SLICES, SLICES, slices
from exporter.model import GpuPart

from .objects import Node, Pod

# Whole GPUs, time-sliced and MPS-shared ones (gpu.shared), MIG profiles; AMD's GPUs and their partitions (cpx_nps4).
# Not resources in megabytes or percent: HAMi's nvidia.com/gpumem and nvidia.com/gpucores.
_GPU_RESOURCE = re.compile(r"nvidia\.com/(?:gpu(?:\..+)?|mig-.+)|amd\.com/(?:gpu(?:\..+)?|[a-z]px_nps[0-9])")
LABEL_ENDS = (".product", ".product-name", ".count", ".replicas")
MODEL_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name")
# Compute partitions of an Instinct GPU (ROCm documentation, "GPU partitioning").
_AMD_PARTITIONS = {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4, "cpx": 8}
_DUST = 1e-9


def is_gpu(resource: str) -> bool:
    """Whether a resource name counts GPUs, or parts of them."""
    return _GPU_RESOURCE.fullmatch(resource) is not None


def parts_of(pods: Iterable[Pod], node_of: Callable[[str], Node | None]) -> tuple[GpuPart, ...]:
    """The GPUs that these pods request, by model. node_of: a node by its name; None if it is unknown."""
    found: dict[str | None, float] = {}
    for pod in pods:
        node = node_of(pod.node or "")
        for resource, number in pod.gpus.items():
            model = model_of(node)
            found[model] = found.get(model, 0.0) + number * _each(node, resource)
    return tuple(GpuPart(model, whole) for model, whole in sorted(found.items(), key=str))


def capacity(node: Node) -> GpuPart:
    """All GPUs of a node. With the MIG strategy "single" the label counts instances: then their slices are added up."""
    allocatable = ceil(sum(number * _each(node, name) for name, number in node.gpus.items()) - _DUST)
    labelled = 0 if "-MIG-" in (model_of(node) or "") else _number(node, "nvidia.com/gpu.count", 0)
    return GpuPart(model_of(node), float(max(allocatable, labelled)))


def model_of(node: Node | None) -> str | None:
    return None if node is None else next((node.labels[name] for name in MODEL_LABELS if name in node.labels), None)


def _each(node: Node | None, resource: str) -> float:
    """The part of a whole GPU that one device of the resource is."""
    vendor, _, device = resource.partition("/")
    if vendor == "amd.com":
        return 1.0 / _AMD_PARTITIONS.get(device.partition("_")[0], 1)
    model, plain = model_of(node) or "", resource.removesuffix(".shared")
    _, has_mig, mig = model.rpartition("-MIG-")
    profile = slices(device) or slices(f"MIG {mig}" if has_mig else None)
    whole = 4 if any(name in model.replace("-", " ") for name in FOUR_SLICES) else SLICES
    part = 1.0 if profile is None else min(1.0, profile / whole)
    return part / max(1, _number(node, f"{plain}.replicas", 1))


def _number(node: Node | None, label: str, default: int) -> int:
    text = "" if node is None else node.labels.get(label, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else default  # noqa: PLR2004 - of a label
