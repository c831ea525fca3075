"""What Prometheus is told to scrape, where replicas hang on it: TG047 and TG048. Pure.

A monitor is taken for one of GPUs or engines by its name, its selector and its port: nothing else says so in a file.

Worked example: a ServiceMonitor of dcgm-exporter without honorLabels makes `DCGM_FI_PROF_SM_ACTIVE{pod="chat-0"}` match
nothing: there `pod` is dcgm-exporter's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .. import rules
from ..config.problem import Loc
from ..config.remark import Remark
from .autoscalers import Autoscaler
from .queries import query, seconds
from .seen import Seen, said
from .things import PROMETHEUS, Thing

_SLOWEST_S = 30.0
_SYNC_S = 15  # the HPA's
_DEFAULT = "1m"  # Prometheus' own scrape_interval; its operator writes 30s
_DCGM = re.compile(r"dcgm")
_WATCHED = re.compile(r"dcgm|vllm|sglang|\btgi\b|text-generation|triton|trtllm|\bepp\b")
_OWN, _EXPORTED = frozenset({"pod", "namespace", "container"}), frozenset({"exported_pod", "exported_namespace"})


class Page(NamedTuple):
    """One place that is scraped. says: the words that tell what it is. honors: whose labels win; None: it relabels, and
    nobody can tell. interval: as it is written, there or where it is inherited from; None: the operator's default.
    """

    at: Loc
    says: str
    honors: bool | None
    interval: str | None


def exporters_labels(scaler: Autoscaler, seen: Seen) -> Iterator[Remark]:
    """Only with a monitor of dcgm-exporter in the same run, which relabels nothing."""
    asked = [(one, query(one.text)) for one in scaler.asked]
    of_gpus = [(one, its) for one, its in asked if any(name.startswith("DCGM_") for name in its.names)]
    honest = _honest(seen) if of_gpus else None
    for one, its in of_gpus:
        if honest is False and its.labels & _OWN:
            label = min(its.labels & _OWN)
            message = f"`{label}` is dcgm-exporter's own (no honorLabels): the workload's is `exported_{label}`"
            yield said(rules.EXPORTERS_LABELS, one.loc, message)
        elif honest and its.labels & _EXPORTED:
            label = min(its.labels & _EXPORTED)
            own = label.removeprefix("exported_")
            yield said(rules.EXPORTERS_LABELS, one.loc, f"honorLabels is true: there is no `{label}`, only `{own}`")


def scraped_seldom(thing: Thing, seen: Seen) -> Iterator[Remark]:
    """thing: a ServiceMonitor, a PodMonitor, or a Prometheus' own configuration."""
    chosen = _chooses_servers(thing, seen)
    for page in _pages(thing):
        every = seconds(page.interval or "")
        if every <= _SLOWEST_S or not (chosen or _WATCHED.search(page.says)):
            continue
        key = "scrape_interval" if thing.kind == PROMETHEUS else "interval"
        left_out = "" if thing.value.at(*page.at, key) is not None else f"is {page.interval} where it is left out: "
        message = f"{left_out}numbers are up to {every:g} s old, and {every / _SYNC_S:g} syncs of the HPA see the same"
        yield said(rules.SCRAPED_SELDOM, (*page.at, key), message)


def _honest(seen: Seen) -> bool | None:
    """Whose labels win on dcgm-exporter's pages; None: there is no monitor of it, or they differ."""
    monitors = seen.of_kind("ServiceMonitor", "PodMonitor", PROMETHEUS)
    honors = {page.honors for one in monitors for page in _pages(one) if _DCGM.search(page.says)}
    return honors.pop() if len(honors) == 1 else None


def _chooses_servers(thing: Thing, seen: Seen) -> bool:
    """Its selector is that of pods on GPUs that are scaled."""
    choice = {key: one.text or "" for key, one in thing.value.below("spec", "selector", "matchLabels").items()}
    if not choice:
        return False
    scaled = (seen.workload_of(one) for one in seen.autoscalers.values())
    return any(one is not None and one.on_gpus and choice.items() <= one.labels.items() for one in scaled)


def _pages(thing: Thing) -> Iterator[Page]:
    value = thing.value
    if thing.kind == PROMETHEUS:
        inherited = value.read("global", "scrape_interval") or _DEFAULT
        for index, job in enumerate(value.items("scrape_configs")):
            honors = None if job.at("metric_relabel_configs") is not None else job.read("honor_labels") == "true"
            interval = job.read("scrape_interval") or inherited
            yield Page(("scrape_configs", index), job.read("job_name"), honors, interval)
        return
    key = "endpoints" if thing.kind == "ServiceMonitor" else "podMetricsEndpoints"
    chosen = value.below("spec", "selector", "matchLabels").values()
    says = " ".join([thing.name, *(one.text or "" for one in chosen)])
    for index, one in enumerate(value.items("spec", key)):
        honors = None if one.at("metricRelabelings") is not None else one.read("honorLabels") == "true"
        yield Page(("spec", key, index), says, honors, one.read("interval") or None)
