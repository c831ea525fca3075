"""Which pods are dcgm-exporters, and where they listen.

It knows the two ways in which people install it. NVIDIA's Helm chart and its GPU Operator call the same program by
different labels and its port by different names.

Worked example: a pod with the label `app: nvidia-dcgm-exporter` whose container names port 9400 `gpu-metrics` is one,
at 9400; so is one with `app.kubernetes.io/name: dcgm-exporter` whose port `metrics` is 9401, at 9401.
"""

from __future__ import annotations

from .objects import Pod

_LABELS = (("app.kubernetes.io/name", "dcgm-exporter"), ("app", "nvidia-dcgm-exporter"))
_PORTS = ("metrics", "gpu-metrics")
_DEFAULT_PORT = 9400


def is_gpu_exporter(pod: Pod) -> bool:
    return any(pod.labels.get(name) == value for name, value in _LABELS)


def page_port(pod: Pod) -> int:
    """The TCP port of its page; the program's own default if none is named as either installation does."""
    return next((pod.ports[name] for name in _PORTS if name in pod.ports), _DEFAULT_PORT)
