"""Rules about what is measured and what for: TG040 to TG059. They read queries, metrics of HPAs, and monitors.

Worked example: `GPU_UTIL_ON_MIG.severity` is "error": that number does not exist there, and no replica follows it.
"""

from __future__ import annotations

from .rule import GITHUB, KEDA, Rule

_DCGM = f"{GITHUB}/NVIDIA/dcgm-exporter/issues"

GPU_UTIL_ON_MIG = Rule(
    "TG040",
    "gpu-util-on-mig",
    "error",
    "DCGM_FI_DEV_GPU_UTIL is not measured on MIG slices: it is absent or 0, whatever the load.",
    "Count requests (waiting + running); where only the GPU can be seen, use DCGM_FI_PROF_GR_ENGINE_ACTIVE.",
    f"{_DCGM}/216",
)
GPU_UTIL_AS_LOAD = Rule(
    "TG041",
    "gpu-util-as-load",
    "warning",
    "GPU utilisation says that some kernel ran, not how many requests wait: one request may hold it at 100 %, and no "
    "load takes it above.",
    "Count requests (waiting + running) against what a replica carries.",
    f"{_DCGM}/301",
)
MEMORY_AS_LOAD = Rule(
    "TG042",
    "memory-as-load",
    "warning",
    "Inference servers take their memory at the start and keep it: it neither rises with load nor falls without.",
    "Count requests (waiting + running), or the share of the KV cache in use.",
    "https://docs.vllm.ai/en/latest/configuration/conserving_memory.html",
)
RATIO_AGAINST_PERCENT = Rule(
    "TG043",
    "ratio-against-percent",
    "error",
    "A ratio of 0 to 1 is compared with a percentage, or the other way round: it never scales, or always.",
    "Bring both to one scale: multiply the ratio by 100, or write the threshold as a ratio.",
    f"{GITHUB}/NVIDIA/dcgm-exporter/blob/main/etc/default-counters.csv",
)
EMPTY_IS_ZERO = Rule(
    "TG044",
    "empty-is-zero",
    "warning",
    "An empty answer of Prometheus is taken for 0: when its source or a label goes missing, replicas are taken away "
    "under load.",
    'Set ignoreNullValues: "false", and take `or vector(0)` out of the query.',
    f"{GITHUB}/kedacore/keda/issues/3065",
)
LONG_WINDOW = Rule(
    "TG045",
    "long-window",
    "warning",
    "A query over a long window shows half of a rise only after half the window, and the HPA's own window follows.",
    "Ask for the gauge as it is or over at most 2m, and smooth once: in the query or in the HPA.",
    f"{KEDA}/scalers/prometheus/",
)
RENAMED_METRIC = Rule(
    "TG046",
    "renamed-metric",
    "warning",
    "The metric was renamed or removed upstream: on a newer engine the query is empty, and nobody is told.",
    "Ask for the new name, or for both with `or`.",
    f"{GITHUB}/vllm-project/vllm/issues/18354",
)
EXPORTERS_LABELS = Rule(
    "TG047",
    "exporters-labels",
    "warning",
    "Without honorLabels, `pod` and `namespace` of a GPU's series are dcgm-exporter's own; the workload's are "
    "`exported_pod` and `exported_namespace`. The query matches nothing.",
    "Set honorLabels: true on the monitor, or match the exported_ labels; not both.",
    f"{_DCGM}/340",
)
SCRAPED_SELDOM = Rule(
    "TG048",
    "scraped-seldom",
    "warning",
    "What scales on these pages hears numbers as old as the scrape interval: queues build up meanwhile.",
    "Scrape engines, gateways and GPU exporters every 15 s or more often.",
    "https://prometheus.io/docs/prometheus/latest/configuration/configuration/#scrape_config",
)

RULES = (
    GPU_UTIL_ON_MIG,
    GPU_UTIL_AS_LOAD,
    MEMORY_AS_LOAD,
    RATIO_AGAINST_PERCENT,
    EMPTY_IS_ZERO,
    LONG_WINDOW,
    RENAMED_METRIC,
    EXPORTERS_LABELS,
    SCRAPED_SELDOM,
)
