"""Describes a response as one JSON object, for `tidegate read`.

Unknown is `null`, never 0; ratios are 0..1; bytes, watts. One queue per unit that scales by itself, one GPU per (UUID,
MIG instance), and every dropped line with its reason.

Worked example: the response `vllm:num_requests_waiting{model_name="m"} 3` is
`{"kind": "vllm", "queues": [{"name": "m", "waiting": 3, "running": null, …}], "gpus": [], "dropped": []}`.
"""

from __future__ import annotations

from math import isnan
from typing import Any

import numpy as np

from exporter.model import Floats, Gpu, Quantity, Queue, Samples
from exporter.textformat import Page

_QUEUE = {
    "running": Quantity.REQUESTS_RUNNING,
    "kv_cache_used": Quantity.KV_CACHE_USED,
    "finished_total": Quantity.REQUESTS_FINISHED,
}
_GPU = {
    "memory_used_bytes": Quantity.GPU_MEMORY_USED,
    "memory_total_bytes": Quantity.GPU_MEMORY_TOTAL,
    "engine_active": Quantity.GPU_ENGINE_ACTIVE,
    "utilization": Quantity.GPU_UTILIZATION,
    "power_watts": Quantity.GPU_POWER,
}
_WHOLE = {"waiting", "running", "finished_total", "memory_used_bytes", "memory_total_bytes"}


def describe(samples: Samples, page: Page) -> dict[str, Any]:
    """The JSON object. page: the one of the samples; its bad lines are listed too."""
    columns = {name: samples.column(quantity) for name, quantity in {**_QUEUE, **_GPU}.items()}
    columns["waiting"] = _waiting(samples)
    queues, gpus = [], []
    for row, subject in enumerate(samples.subjects):
        numbers = {name: _number(name, float(column[row])) for name, column in columns.items()}
        if isinstance(subject, Queue):
            queues.append({"name": subject.name, **{name: numbers[name] for name in ("waiting", *_QUEUE)}})
        elif not subject.implied:  # one entry for each GPU or instance in the response
            gpus.append(_gpu(subject, {name: numbers[name] for name in _GPU}))
    dropped = sorted({*page.dropped, *samples.dropped})
    return {
        "kind": samples.kind,
        "queues": queues,
        "gpus": gpus,
        "dropped": [{"line": line, "reason": reason} for line, reason in dropped],
    }


def _waiting(samples: Samples) -> Floats:
    """All waiting requests: at the engines and held by the gateway, as far as the response has each.

    If a gateway has no ready engine, only what it holds.
    """
    parts = [
        samples.column(quantity)
        for quantity in (Quantity.REQUESTS_WAITING, Quantity.REQUESTS_HELD)
        if quantity in samples.quantities
    ]
    waiting = np.sum(parts, axis=0) if parts else np.full(len(samples.subjects), np.nan)
    none_ready = samples.column(Quantity.REPLICAS_READY) == 0.0
    return np.where(none_ready, samples.column(Quantity.REQUESTS_HELD), waiting)


def _gpu(gpu: Gpu, numbers: dict[str, float | int | None]) -> dict[str, Any]:
    return {
        "uuid": gpu.uuid,
        "instance": gpu.instance,
        "profile": gpu.profile,
        "model": gpu.model,
        **numbers,
        "attribution": str(gpu.attribution),
        "pods": [{"namespace": pod.namespace, "pod": pod.pod} for pod in gpu.pods],
    }


def _number(name: str, value: float) -> float | int | None:
    """A count or bytes as an integer, any other value as a float; None for NaN."""
    if isnan(value):
        return None
    return int(value) if name in _WHOLE and value.is_integer() else value
