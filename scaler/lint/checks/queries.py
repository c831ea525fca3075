"""Checks the metrics that autoscalers use (TG040 to TG046), and how Prometheus scrapes them (TG047 and TG048). Pure.

A monitor belongs to GPUs or engines by its name, its selector and its port: a file has nothing else that tells.

Worked examples: `avg(DCGM_FI_PROF_GR_ENGINE_ACTIVE)` is 0 to 1, so a threshold of 80 is never reached: TG043. With a
ServiceMonitor of dcgm-exporter without honorLabels, `DCGM_FI_PROF_SM_ACTIVE{pod="chat-0"}` matches nothing: there `pod`
is the pod of dcgm-exporter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from scaler.config import rules
from scaler.config.errors import Finding, Loc
from scaler.config.scalars import write_duration

from ..autoscalers import Autoscaler, LintContext, ScalingMetric
from ..objects import PROMETHEUS, LintObject
from ..promql import ParsedQuery, parse_query, seconds
from .hpa import LONGEST_DOWN_S, down_window

_UTILIZATION = re.compile(r"DCGM_FI_DEV_GPU_UTIL(_RATIO)?|nv_gpu_utilization|nvidia_smi_utilization_gpu_ratio")
_DCGM_UTILIZATION = re.compile(r"DCGM_FI_DEV_GPU_UTIL(_RATIO)?")
_MEMORY = re.compile(r"DCGM_FI_DEV_FB_(USED|FREE|USED_PERCENT|RESERVED)|nv_gpu_memory_\w+|nvidia_smi_memory_\w+")
_CPU_MEMORY = re.compile(r"container_memory_\w+|process_resident_memory_bytes")
# 0 to 1 (etc/default-counters.csv of dcgm-exporter; docs of the engines: "perc" is no percentage).
_RATIO = re.compile(
    r"DCGM_FI_PROF_(GR_ENGINE|SM|PIPE_TENSOR|DRAM|PIPE_FP\d\d)_ACTIVE|vllm:(gpu|kv)_cache_usage_perc|sglang:token_usage"
    r"|nv_gpu_utilization|trtllm_kv_cache_utilization|llamacpp:kv_cache_usage_ratio"
)
# 0 to 100. The scale of GPU_UTIL_RATIO, its name in DCGM 4.6, is uncertain: no rule uses it.
_PERCENT = re.compile(r"DCGM_FI_DEV_(GPU|MEM_COPY|ENC|DEC)_UTIL")
_MOST_GPUS = 16  # of one pod: a sum over them may have a target above 1
_LONGEST_WINDOW_S = 120.0
# Old name: new name, "" if there is none. vLLM: docs/design/metrics.md, and #18354.
RENAMED: Mapping[str, str] = {
    "vllm:gpu_cache_usage_perc": "vllm:kv_cache_usage_perc",
    "vllm:time_per_output_token_seconds": "vllm:inter_token_latency_seconds",
    "vllm:time_per_output_token_seconds_bucket": "vllm:inter_token_latency_seconds_bucket",
    "vllm:num_requests_swapped": "",
    "vllm:cpu_cache_usage_perc": "",
}
_SLOWEST_S = 30.0
_SYNC_S = 15  # the HPA's
_DEFAULT_INTERVAL = "1m"  # of Prometheus; its operator sets 30s
_DCGM = re.compile(r"dcgm")
_WATCHED = re.compile(r"dcgm|vllm|sglang|\btgi\b|text-generation|triton|trtllm|\bepp\b")
_EXPORTER_LABELS, _EXPORTED_LABELS = (
    frozenset({"pod", "namespace", "container"}),
    frozenset({"exported_pod", "exported_namespace"}),
)


def _queries(scaler: Autoscaler) -> Iterator[tuple[ScalingMetric, ParsedQuery]]:
    """Each query, parsed. For an HPA, the name of the metric."""
    for one in scaler.metrics:
        if one.text and one.kind not in {"Resource", "ContainerResource"}:
            yield one, parse_query(one.text)


def gpu_util_on_mig(scaler: Autoscaler, context: LintContext) -> Iterator[Finding]:
    target = context.workload_of(scaler)
    for one, parsed in _queries(scaler):
        if target is not None and target.on_mig and any(_DCGM_UTILIZATION.fullmatch(name) for name in parsed.names):
            message = f"DCGM_FI_DEV_GPU_UTIL does not exist on MIG, and {target.obj} requests a slice: absent, or 0"
            yield Finding(one.loc, message, rule=rules.GPU_UTIL_ON_MIG)


def gpu_util_as_load(scaler: Autoscaler, context: LintContext) -> Iterator[Finding]:
    if any(gpu_util_on_mig(scaler, context)):
        return
    for one, parsed in _queries(scaler):
        used = next((name for name in sorted(parsed.names) if _UTILIZATION.fullmatch(name)), None)
        if used is not None:
            message = f"{used} shows that a kernel ran, not how much waits: one request may hold it at 100 %"
            yield Finding(one.loc, message, rule=rules.GPU_UTIL_AS_LOAD)


def memory_as_load(scaler: Autoscaler, context: LintContext) -> Iterator[Finding]:
    on_gpus = context.is_on_gpus(scaler)
    for one in scaler.metrics:
        if on_gpus and "memory" in {one.kind, one.text} and one.kind in {"memory", "Resource", "ContainerResource"}:
            message = "a server on GPUs allocates its memory at the start: it does not show load"
            yield Finding(one.loc, message, rule=rules.MEMORY_AS_LOAD)
    for one, parsed in _queries(scaler):
        used = next((name for name in sorted(parsed.names) if _MEMORY.fullmatch(name)), None)
        used = used or next((name for name in sorted(parsed.names) if on_gpus and _CPU_MEMORY.fullmatch(name)), None)
        if used is not None:
            message = f"{used} is allocated at the start: it does not follow the load"
            yield Finding(one.loc, message, rule=rules.MEMORY_AS_LOAD)


def ratio_against_percent(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    """Only for queries of known scale that neither multiply nor divide."""
    for one, parsed in _queries(scaler):
        if not parsed.names or parsed.has_arithmetic or one.target is None:
            continue
        ratios = [name for name in sorted(parsed.names) if _RATIO.fullmatch(name)]
        percents = [name for name in sorted(parsed.names) if _PERCENT.fullmatch(name)]
        if len(ratios) + len(percents) < len(parsed.names):
            continue
        most = _MOST_GPUS if parsed.sums else 1
        if ratios and percents:
            message = f"{ratios[0]} is 0 to 1 and {percents[0]} 0 to 100: one of them is compared wrongly"
        elif ratios and one.target > most:
            message = f"{ratios[0]} is 0 to 1: a target of {one.target:g} is never reached"
        elif percents and one.target <= 1:
            message = f"{percents[0]} is 0 to 100: a target of {one.target:g} is always exceeded"
        else:
            continue
        yield Finding(one.loc, message, rule=rules.RATIO_AGAINST_PERCENT)


def empty_is_zero(scaler: Autoscaler, context: LintContext) -> Iterator[Finding]:
    """Only for engines and GPUs: elsewhere an empty result may mean zero."""
    for one, parsed in _queries(scaler):
        if one.kind != "prometheus" or not (parsed.on_engines or context.is_on_gpus(scaler)):
            continue
        at = (*one.at, "metadata", "ignoreNullValues")
        written = scaler.value.at(*at)
        if parsed.fills:
            message = "`or vector(0)` turns unknown into 0: replicas go when the source of the metric does"
            yield Finding(one.loc, message, rule=rules.EMPTY_IS_ZERO)
        elif written is None or written.text != "false":
            default = "" if written is not None else "is true by default: "
            yield Finding(at, f"{default}an empty result counts as 0", rule=rules.EMPTY_IS_ZERO)


def long_window(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    """A mean over a window, then the HPA's maximum over another one: two smoothings in a row."""
    keeps = down_window(scaler)
    for one, parsed in _queries(scaler):
        longest = max(parsed.windows, default=0.0)
        if (parsed.on_engines or scaler.is_ours) and longest > _LONGEST_WINDOW_S and keeps > LONGEST_DOWN_S:
            message = (
                f"over {write_duration(longest)} half a rise shows after {write_duration(longest / 2)}; a fall "
                f"after {write_duration(longest)}, and the HPA keeps replicas for {write_duration(float(keeps))} more"
            )
            yield Finding(one.loc, message, rule=rules.LONG_WINDOW)


def renamed_metric(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    """A query with both names works with every version."""
    for one, parsed in _queries(scaler):
        for name in sorted(parsed.names & set(RENAMED)):
            new = RENAMED[name]
            if new not in parsed.names:
                better = f"is {new} now" if new else "is gone"
                yield Finding(
                    one.loc, f"{name} {better}: on a new engine the query is empty", rule=rules.RENAMED_METRIC
                )


class ScrapedEndpoint(NamedTuple):
    """One endpoint that Prometheus scrapes.

    description:  names and labels that show what it is.
    honor_labels: None if relabeling makes it uncertain.
    interval:     as written, possibly inherited; None for the operator's default.
    """

    at: Loc
    description: str
    honor_labels: bool | None
    interval: str | None


def exporters_labels(scaler: Autoscaler, context: LintContext) -> Iterator[Finding]:
    """Only with a monitor of dcgm-exporter in the same run that does not relabel."""
    parsed = [(one, parse_query(one.text)) for one in scaler.metrics]
    of_gpus = [(one, its) for one, its in parsed if any(name.startswith("DCGM_") for name in its.names)]
    honor_labels = _honors_labels(context) if of_gpus else None
    for one, its in of_gpus:
        if honor_labels is False and its.labels & _EXPORTER_LABELS:
            label = min(its.labels & _EXPORTER_LABELS)
            message = f"`{label}` is that of dcgm-exporter (no honorLabels): the workload's is `exported_{label}`"
            yield Finding(one.loc, message, rule=rules.EXPORTER_LABELS)
        elif honor_labels and its.labels & _EXPORTED_LABELS:
            label = min(its.labels & _EXPORTED_LABELS)
            plain_label = label.removeprefix("exported_")
            yield Finding(
                one.loc, f"honorLabels is true: there is no `{label}`, only `{plain_label}`", rule=rules.EXPORTER_LABELS
            )


def scraped_seldom(obj: LintObject, context: LintContext) -> Iterator[Finding]:
    """obj: a ServiceMonitor, a PodMonitor, or a configuration of Prometheus."""
    chosen = _selects_scaled_pods(obj, context)
    for endpoint in _scraped_endpoints(obj):
        interval_s = seconds(endpoint.interval or "")
        if interval_s <= _SLOWEST_S or not (chosen or _WATCHED.search(endpoint.description)):
            continue
        key = "scrape_interval" if obj.kind == PROMETHEUS else "interval"
        default = "" if obj.value.at(*endpoint.at, key) is not None else f"is {endpoint.interval} by default: "
        syncs = f"{interval_s / _SYNC_S:g} syncs of the HPA"
        message = f"{default}values are up to {interval_s:g} s old, and {syncs} use the same"
        yield Finding((*endpoint.at, key), message, rule=rules.SCRAPED_RARELY)


def _honors_labels(context: LintContext) -> bool | None:
    """HonorLabels of dcgm-exporter's monitors; None without a monitor, or if they differ."""
    monitors = context.of_kind("ServiceMonitor", "PodMonitor", PROMETHEUS)
    values = {
        endpoint.honor_labels
        for one in monitors
        for endpoint in _scraped_endpoints(one)
        if _DCGM.search(endpoint.description)
    }
    return values.pop() if len(values) == 1 else None


def _selects_scaled_pods(obj: LintObject, context: LintContext) -> bool:
    """Whether its selector matches pods with GPUs of a scale target."""
    choice = {key: one.text or "" for key, one in obj.value.below("spec", "selector", "matchLabels").items()}
    if not choice:
        return False
    scaled = (context.workload_of(one) for one in context.autoscalers.values())
    return any(one is not None and one.on_gpus and choice.items() <= one.labels.items() for one in scaled)


def _scraped_endpoints(obj: LintObject) -> Iterator[ScrapedEndpoint]:
    value = obj.value
    if obj.kind == PROMETHEUS:
        inherited = value.read("global", "scrape_interval") or _DEFAULT_INTERVAL
        for index, job in enumerate(value.items("scrape_configs")):
            honor_labels = None if job.at("metric_relabel_configs") is not None else job.read("honor_labels") == "true"
            interval = job.read("scrape_interval") or inherited
            yield ScrapedEndpoint(("scrape_configs", index), job.read("job_name"), honor_labels, interval)
        return
    key = "endpoints" if obj.kind == "ServiceMonitor" else "podMetricsEndpoints"
    chosen = value.below("spec", "selector", "matchLabels").values()
    description = " ".join([obj.name, *(one.text or "" for one in chosen)])
    for index, one in enumerate(value.items("spec", key)):
        honor_labels = None if one.at("metricRelabelings") is not None else one.read("honorLabels") == "true"
        yield ScrapedEndpoint(("spec", key, index), description, honor_labels, one.read("interval") or None)
