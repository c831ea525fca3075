"""What Prometheus is told to scrape, where replicas hang on it: TG047 and TG048. Pure.

A monitor is taken for one of GPUs or engines by its name, its selector and its port: nothing else says so in a file.

Worked example: a ServiceMonitor of dcgm-exporter without honorLabels makes `DCGM_FI_PROF_SM_ACTIVE{pod="chat-0"}` match
nothing: there `pod` is dcgm-exporter's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..config.problem import Loc
from ..config.remark import Remark
from ..rules import signals as rules
from .autoscalers import Autoscaler
from .queries import query, seconds
from .seen import Seen, said
from .things import Thing

_SLOWEST_S = 30.0
_DCGM = re.compile(r"dcgm")
_WATCHED = re.compile(r"dcgm|vllm|sglang|\btgi\b|text-generation|triton|tensorrt|trtllm|llama|inference|\bepp\b|\bllm")
_OWN, _EXPORTED = frozenset({"pod", "namespace", "container"}), frozenset({"exported_pod", "exported_namespace"})


def exporters_labels(scaler: Autoscaler, seen: Seen) -> Iterator[Remark]:
    """Only with a monitor of dcgm-exporter in the same run, which relabels nothing."""
    honest = [_honors(one, at) for one in _of_dcgm(seen) for at in _endpoints(one)]
    if not honest or None in honest or len(set(honest)) > 1:
        return
    for one in scaler.asked:
        asked = query(one.text)
        if not any(name.startswith("DCGM_") for name in asked.names):
            continue
        if not honest[0] and asked.labels & _OWN:
            label = min(asked.labels & _OWN)
            message = f"`{label}` is dcgm-exporter's own (no honorLabels): the workload's is `exported_{label}`"
            yield said(rules.EXPORTERS_LABELS, one.loc, message)
        elif honest[0] and asked.labels & _EXPORTED:
            label = min(asked.labels & _EXPORTED)
            message = (
                f"with honorLabels: true there is no `{label}`: the workload's is `{label.removeprefix('exported_')}`"
            )
            yield said(rules.EXPORTERS_LABELS, one.loc, message)


def scraped_seldom(thing: Thing, seen: Seen) -> Iterator[Remark]:
    """thing: a ServiceMonitor or PodMonitor."""
    if not _is_watched(thing, seen):
        return
    for at in _endpoints(thing):
        interval = thing.value.at(*at, "interval")
        every = seconds(interval.text or "") if interval is not None else 0.0
        if every > _SLOWEST_S:
            message = (
                f"what scales on it hears numbers up to {every:g} s old: {every / 15:g} syncs of the HPA see the same"
            )
            yield said(rules.SCRAPED_SELDOM, (*at, "interval"), message)


def _of_dcgm(seen: Seen) -> list[Thing]:
    return [one for one in seen.of_kind("ServiceMonitor", "PodMonitor") if _DCGM.search(_says(one))]


def _is_watched(thing: Thing, seen: Seen) -> bool:
    if _WATCHED.search(_says(thing)):
        return True
    choice = {key: one.text or "" for key, one in thing.value.below("spec", "selector", "matchLabels").items()}
    scaled = (seen.workload_of(one) for one in seen.autoscalers.values())
    return bool(choice) and any(
        one is not None and one.on_gpus and choice.items() <= one.labels.items() for one in scaled
    )


def _says(thing: Thing) -> str:
    chosen = thing.value.below("spec", "selector", "matchLabels").values()
    return " ".join([thing.name, *(one.text or "" for one in chosen)])


def _endpoints(thing: Thing) -> list[Loc]:
    key = "endpoints" if thing.kind == "ServiceMonitor" else "podMetricsEndpoints"
    return [("spec", key, index) for index in range(len(thing.value.items("spec", key)))]


def _honors(thing: Thing, at: Loc) -> bool | None:
    """None: it relabels, and nobody can tell."""
    endpoint = thing.value.at(*at)
    if endpoint is None or endpoint.at("metricRelabelings") is not None:
        return None
    return endpoint.read("honorLabels") == "true"
