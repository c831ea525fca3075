"""What replicas are made to hang on: TG040 to TG046. Pure.

Worked example: `avg(DCGM_FI_PROF_GR_ENGINE_ACTIVE)` is 0 to 1, so a threshold of 80 is never reached: TG043.

What Prometheus is told to scrape, where replicas hang on it: TG047 and TG048. Pure.

A monitor is taken for one of GPUs or engines by its name, its selector and its port: nothing else says so in a file.

Worked example: a ServiceMonitor of dcgm-exporter without honorLabels makes `DCGM_FI_PROF_SM_ACTIVE{pod="chat-0"}` match
nothing: there `pod` is dcgm-exporter's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from scaler.config import rules
from scaler.config.errors import Loc
from scaler.config.scalars import write_duration

from ..autoscalers import Autoscaler, LintContext, ScalingMetric
from ..findings import Remark, said
from ..objects import PROMETHEUS, Thing
from ..promql import ParsedQuery, query, seconds
from .hpa import LONGEST_DOWN_S, down_window

_UTILIZATION = re.compile(r"DCGM_FI_DEV_GPU_UTIL(_RATIO)?|nv_gpu_utilization|nvidia_smi_utilization_gpu_ratio")
_DCGM_UTILIZATION = re.compile(r"DCGM_FI_DEV_GPU_UTIL(_RATIO)?")
_MEMORY = re.compile(r"DCGM_FI_DEV_FB_(USED|FREE|USED_PERCENT|RESERVED)|nv_gpu_memory_\w+|nvidia_smi_memory_\w+")
_CPU_MEMORY = re.compile(r"container_memory_\w+|process_resident_memory_bytes")
# 0 to 1 (etc/default-counters.csv of dcgm-exporter; docs of the engines: "perc" is none).
_RATIO = re.compile(
    r"DCGM_FI_PROF_(GR_ENGINE|SM|PIPE_TENSOR|DRAM|PIPE_FP\d\d)_ACTIVE|vllm:(gpu|kv)_cache_usage_perc|sglang:token_usage"
    r"|nv_gpu_utilization|trtllm_kv_cache_utilization|llamacpp:kv_cache_usage_ratio"
)
# 0 to 100. The scale of its name of DCGM 4.6, GPU_UTIL_RATIO, is not known for sure: nothing is said of that.
_PERCENT = re.compile(r"DCGM_FI_DEV_(GPU|MEM_COPY|ENC|DEC)_UTIL")
_MOST_GPUS = 16  # of one pod: a sum over them may well have a target above 1
_LONGEST_WINDOW_S = 120.0
# Old name: what to ask for in its place. vLLM: docs/design/metrics.md, and #18354.
RENAMED: Mapping[str, str] = {
    "vllm:gpu_cache_usage_perc": "vllm:kv_cache_usage_perc",
    "vllm:time_per_output_token_seconds": "vllm:inter_token_latency_seconds",
    "vllm:time_per_output_token_seconds_bucket": "vllm:inter_token_latency_seconds_bucket",
    "vllm:num_requests_swapped": "",
    "vllm:cpu_cache_usage_perc": "",
}


def _queries(scaler: Autoscaler) -> Iterator[tuple[ScalingMetric, ParsedQuery]]:
    """Of an HPA, the metrics' names are all there is of them."""
    for one in scaler.asked:
        if one.text and one.kind not in {"Resource", "ContainerResource"}:
            yield one, query(one.text)


def gpu_util_on_mig(scaler: Autoscaler, seen: LintContext) -> Iterator[Remark]:
    target = seen.workload_of(scaler)
    for one, asked in _queries(scaler):
        if target is not None and target.on_mig and any(_DCGM_UTILIZATION.fullmatch(name) for name in asked.names):
            message = f"DCGM_FI_DEV_GPU_UTIL is not measured on MIG, and {target.thing} asks for a slice: absent, or 0"
            yield said(rules.GPU_UTIL_ON_MIG, one.loc, message)


def gpu_util_as_load(scaler: Autoscaler, seen: LintContext) -> Iterator[Remark]:
    if any(gpu_util_on_mig(scaler, seen)):
        return
    for one, asked in _queries(scaler):
        used = next((name for name in sorted(asked.names) if _UTILIZATION.fullmatch(name)), None)
        if used is not None:
            message = f"{used} says that a kernel ran, not how much waits: one request may hold it at 100 %"
            yield said(rules.GPU_UTIL_AS_LOAD, one.loc, message)


def memory_as_load(scaler: Autoscaler, seen: LintContext) -> Iterator[Remark]:
    on_gpus = seen.is_on_gpus(scaler)
    for one in scaler.asked:
        if on_gpus and "memory" in {one.kind, one.text} and one.kind in {"memory", "Resource", "ContainerResource"}:
            message = "memory of a server on GPUs is taken at the start and kept: it says nothing of load"
            yield said(rules.MEMORY_AS_LOAD, one.loc, message)
    for one, asked in _queries(scaler):
        used = next((name for name in sorted(asked.names) if _MEMORY.fullmatch(name)), None)
        used = used or next((name for name in sorted(asked.names) if on_gpus and _CPU_MEMORY.fullmatch(name)), None)
        if used is not None:
            message = f"{used} is taken at the start and kept: it neither rises with load nor falls without"
            yield said(rules.MEMORY_AS_LOAD, one.loc, message)


def ratio_against_percent(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    """Only of queries that are all of one scale and neither multiply nor divide: of others nobody can tell."""
    for one, asked in _queries(scaler):
        if not asked.names or asked.has_arithmetic or one.target is None:
            continue
        ratios = [name for name in sorted(asked.names) if _RATIO.fullmatch(name)]
        percents = [name for name in sorted(asked.names) if _PERCENT.fullmatch(name)]
        if len(ratios) + len(percents) < len(asked.names):
            continue
        most = _MOST_GPUS if asked.sums else 1
        if ratios and percents:
            message = f"{ratios[0]} is 0 to 1 and {percents[0]} 0 to 100: one of them is compared wrongly"
        elif ratios and one.target > most:
            message = f"{ratios[0]} is 0 to 1: a target of {one.target:g} is never reached"
        elif percents and one.target <= 1:
            message = f"{percents[0]} is 0 to 100: a target of {one.target:g} is always exceeded"
        else:
            continue
        yield said(rules.RATIO_AGAINST_PERCENT, one.loc, message)


def empty_is_zero(scaler: Autoscaler, seen: LintContext) -> Iterator[Remark]:
    """Of queries about engines and GPUs, or for workloads on GPUs: elsewhere an empty answer may well mean nothing."""
    for one, asked in _queries(scaler):
        if one.kind != "prometheus" or not (asked.on_engines or seen.is_on_gpus(scaler)):
            continue
        at = (*one.at, "metadata", "ignoreNullValues")
        written = scaler.value.at(*at)
        if asked.fills:
            message = "`or vector(0)` makes a 0 of what is not known: replicas go when its source does"
            yield said(rules.EMPTY_IS_ZERO, one.loc, message)
        elif written is None or written.text != "false":
            left_out = "" if written is not None else "is true where it is left out: "
            yield said(rules.EMPTY_IS_ZERO, at, f"{left_out}an empty answer is taken for 0")


def long_window(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    """A mean over a window, and then the HPA's highest of another: two smoothings, one after the other."""
    keeps = down_window(scaler)
    for one, asked in _queries(scaler):
        longest = max(asked.windows, default=0.0)
        if (asked.on_engines or scaler.ours) and longest > _LONGEST_WINDOW_S and keeps > LONGEST_DOWN_S:
            message = (
                f"over {write_duration(longest)} half a rise is seen after {write_duration(longest / 2)}; a fall "
                f"after {write_duration(longest)}, and the HPA keeps replicas for {write_duration(float(keeps))} more"
            )
            yield said(rules.LONG_WINDOW, one.loc, message)


def renamed_metric(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    """Both names beside each other are right on every version."""
    for one, asked in _queries(scaler):
        for name in sorted(asked.names & set(RENAMED)):
            new = RENAMED[name]
            if new not in asked.names:
                better = f"is {new} now" if new else "is printed no more"
                yield said(rules.RENAMED_METRIC, one.loc, f"{name} {better}: on a new engine the query is empty")


_SLOWEST_S = 30.0
_SYNC_S = 15  # the HPA's
_DEFAULT = "1m"  # Prometheus' own scrape_interval; its operator writes 30s
_DCGM = re.compile(r"dcgm")
_WATCHED = re.compile(r"dcgm|vllm|sglang|\btgi\b|text-generation|triton|trtllm|\bepp\b")
_OWN, _EXPORTED = frozenset({"pod", "namespace", "container"}), frozenset({"exported_pod", "exported_namespace"})


class ScrapedEndpoint(NamedTuple):
    """One place that is scraped. says: the words that tell what it is. honors: whose labels win; None: it relabels, and
    nobody can tell. interval: as it is written, there or where it is inherited from; None: the operator's default.
    """

    at: Loc
    says: str
    honors: bool | None
    interval: str | None


def exporters_labels(scaler: Autoscaler, seen: LintContext) -> Iterator[Remark]:
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


def scraped_seldom(thing: Thing, seen: LintContext) -> Iterator[Remark]:
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


def _honest(seen: LintContext) -> bool | None:
    """Whose labels win on dcgm-exporter's pages; None: there is no monitor of it, or they differ."""
    monitors = seen.of_kind("ServiceMonitor", "PodMonitor", PROMETHEUS)
    honors = {page.honors for one in monitors for page in _pages(one) if _DCGM.search(page.says)}
    return honors.pop() if len(honors) == 1 else None


def _chooses_servers(thing: Thing, seen: LintContext) -> bool:
    """Its selector is that of pods on GPUs that are scaled."""
    choice = {key: one.text or "" for key, one in thing.value.below("spec", "selector", "matchLabels").items()}
    if not choice:
        return False
    scaled = (seen.workload_of(one) for one in seen.autoscalers.values())
    return any(one is not None and one.on_gpus and choice.items() <= one.labels.items() for one in scaled)


def _pages(thing: Thing) -> Iterator[ScrapedEndpoint]:
    value = thing.value
    if thing.kind == PROMETHEUS:
        inherited = value.read("global", "scrape_interval") or _DEFAULT
        for index, job in enumerate(value.items("scrape_configs")):
            honors = None if job.at("metric_relabel_configs") is not None else job.read("honor_labels") == "true"
            interval = job.read("scrape_interval") or inherited
            yield ScrapedEndpoint(("scrape_configs", index), job.read("job_name"), honors, interval)
        return
    key = "endpoints" if thing.kind == "ServiceMonitor" else "podMetricsEndpoints"
    chosen = value.below("spec", "selector", "matchLabels").values()
    says = " ".join([thing.name, *(one.text or "" for one in chosen)])
    for index, one in enumerate(value.items("spec", key)):
        honors = None if one.at("metricRelabelings") is not None else one.read("honorLabels") == "true"
        yield ScrapedEndpoint(("spec", key, index), says, honors, one.read("interval") or None)
