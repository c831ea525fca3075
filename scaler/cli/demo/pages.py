"""Renders the metrics pages of the simulated cluster in the format of the real programs.

vLLM's V1 engine and the Endpoint Picker of the Gateway API Inference Extension print floats as Python's client does;
dcgm-exporter prints what DCGM returns.

Worked example: `vllm_page("chat", pod)` has the line
`vllm:num_requests_waiting{engine="0",model_name="chat"} 3.0`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from .cluster import SimulatedCluster, SimulatedReplica
from .gpus import DcgmReading, SimulatedGpu

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
# Buckets of vLLM for these histograms, in seconds.
_FIRST_TOKEN_BUCKETS = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0)
_OUTPUT_TOKEN_BUCKETS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_END_TO_END_BUCKETS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0)


def _family(name: str, kind: str, text: str, series: Iterable[tuple[str, float]]) -> list[str]:
    """HELP, TYPE and one line per (labels, value); a counter's samples end in _total whatever its family's name."""
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    return lines + [f"{name}{{{labels}}} {float(value)}" for labels, value in series]


def _gauge(name: str, labels: str, value: float, text: str) -> list[str]:
    return _family(name, "gauge", text, [(labels, value)])


def _counter(name: str, labels: str, value: float, text: str) -> list[str]:
    return _family(name, "counter", text, [(labels, value)])


def _histogram(name: str, text: str, labels: str, buckets: Sequence[float], values: Sequence[float]) -> list[str]:
    """labels: `engine` and `model_name`; `le` stands between them, in alphabetical order."""
    engine, model = labels.split(",")
    counts = np.searchsorted(np.sort(np.asarray(values, dtype=float)), buckets, side="right")
    bounds = [*zip(map(str, buckets), counts.tolist(), strict=True), ("+Inf", len(values))]
    lines = [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
    lines += [f'{name}_bucket{{{engine},le="{bound}",{model}}} {float(count)}' for bound, count in bounds]
    return [*lines, f"{name}_count{{{labels}}} {float(len(values))}", f"{name}_sum{{{labels}}} {float(sum(values))}"]


def vllm_page(model: str, pod: SimulatedReplica) -> str:
    """The page of one replica."""
    engine = pod.engine
    labels = f'engine="0",model_name="{model}"'
    reasons = (("stop", engine.finished), ("length", 0), ("abort", 0), ("error", 0))
    success = [(f'engine="0",finished_reason="{reason}",model_name="{model}"', count) for reason, count in reasons]
    awake = [
        (f'{labels},sleep_state="{state}"', value)
        for state, value in (("awake", 1), ("weights_offloaded", 0), ("discard_all", 0))
    ]
    lines = [
        *_family("python_info", "gauge", "Python platform information", [('implementation="CPython",major="3"', 1)]),
        *_gauge("vllm:num_requests_running", labels, engine.running, "Number of requests in model execution batches."),
        *_gauge("vllm:num_requests_waiting", labels, engine.waiting, "Number of requests waiting to be processed."),
        *_family("vllm:engine_sleep_state", "gauge", "Engine sleep state; awake = 0 means engine is sleeping.", awake),
        *_gauge("vllm:kv_cache_usage_perc", labels, engine.kv_used, "KV-cache usage. 1 means 100 percent usage."),
        *_counter("vllm:num_preemptions_total", labels, 0, "Cumulative number of preemptions."),
        *_counter("vllm:prompt_tokens_total", labels, engine.prompt_tokens, "Number of prefill tokens processed."),
        *_gauge("vllm:prompt_tokens_created", labels, pod.ready_at, "Number of prefill tokens processed."),
        *_counter(
            "vllm:generation_tokens_total", labels, engine.generated_tokens, "Number of generation tokens processed."
        ),
        *_family("vllm:request_success_total", "counter", "Count of successfully processed requests.", success),
        *_histogram(
            "vllm:time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            labels,
            _FIRST_TOKEN_BUCKETS,
            engine.first_token_s,
        ),
        *_family("vllm:inter_token_latency_seconds", "histogram", "Histogram of inter-token latency in seconds.", ()),
        f'vllm:inter_token_latency_seconds_bucket{{engine="0",le="+Inf",model_name="{model}"}} {float(engine.gaps)}',
        f"vllm:inter_token_latency_seconds_count{{{labels}}} {float(engine.gaps)}",
        f"vllm:inter_token_latency_seconds_sum{{{labels}}} {engine.gap_s}",
        *_histogram(
            "vllm:request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            labels,
            _OUTPUT_TOKEN_BUCKETS,
            pod.output_token_s,
        ),
        *_histogram(
            "vllm:e2e_request_latency_seconds",
            "Histogram of e2e request latency in seconds.",
            labels,
            _END_TO_END_BUCKETS,
            pod.end_to_end_s,
        ),
    ]
    return "\n".join(lines) + "\n"


class GatewayState(NamedTuple):
    """A gateway's view of its pool. waiting, running: requests per ready pod. kv_used: mean ratio; None: unknown."""

    held: int
    sent: int
    ready: int
    waiting: float
    running: float
    kv_used: float | None = None


def gateway_page(model: str, pool: str, cluster: SimulatedCluster) -> str:
    """The page of the Endpoint Picker of a simulated cluster."""
    ready = cluster.ready
    count = max(1, len(ready))
    state = GatewayState(
        held=len(cluster.held),
        sent=cluster.tally.sent,
        ready=len(ready),
        waiting=sum(pod.engine.waiting for pod in ready) / count,
        running=sum(pod.engine.running for pod in ready) / count,
        kv_used=sum(pod.engine.kv_used for pod in ready) / count,
    )
    return gateway_text(model, pool, state)


def gateway_text(model: str, pool: str, state: GatewayState) -> str:
    """The page of the Endpoint Picker. It exists at zero replicas, where its queue is the wake source."""
    flow = (
        f'fairness_id="default",inference_pool="{pool}",model_name="{model}",priority="0",target_model_name="{model}"'
    )
    request = f'model_name="{model}",priority="0",target_model_name="{model}"'
    name = f'name="{pool}"'
    kv_cache = (
        "inference_pool_average_kv_cache_utilization",
        "gauge",
        "[ALPHA] The average kv cache utilization for an inference server pool.",
    )
    lines = [
        *_gauge(
            "inference_extension_flow_control_queue_size",
            flow,
            state.held,
            "[ALPHA] Current number of requests being actively managed by the EPP flow control layer.",
        ),
        *_counter(
            "inference_objective_request_total",
            request,
            state.sent,
            "[ALPHA] Counter of inference objective requests broken out for each model and target model.",
        ),
        *([] if state.kv_used is None else _family(*kv_cache, [(name, state.kv_used)])),
        *_gauge(
            "inference_pool_average_queue_size",
            name,
            state.waiting,
            "[ALPHA] The average number of requests pending in the model server queue.",
        ),
        *_gauge(
            "inference_pool_average_running_requests",
            name,
            state.running,
            "[ALPHA] The average number of running requests across all pods in the inference pool.",
        ),
        *_gauge(
            "inference_pool_ready_pods",
            name,
            state.ready,
            "[ALPHA] The number of ready pods in the inference server pool.",
        ),
    ]
    return "\n".join(lines) + "\n"


# (family, type, help, field of DcgmReading, format of dcgm-exporter)
_DCGM = (
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", "temperature_c", "{:.0f}"),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", "power_w", "{:.6f}"),
    (
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Total energy consumption since boot (in mJ).",
        "energy_mj",
        "{:.0f}",
    ),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", "utilization_percent", "{:.0f}"),
    ("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", "free_mib", "{:.0f}"),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", "used_mib", "{:.0f}"),
    ("DCGM_FI_DEV_FB_RESERVED", "gauge", "Framebuffer memory reserved (in MiB).", "reserved_mib", "{:.0f}"),
    (
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "gauge",
        "Ratio of time the graphics engine is active.",
        "engine_active",
        "{:.6f}",
    ),
)


def dcgm_page(
    gpus: Sequence[tuple[SimulatedGpu, DcgmReading]], namespace: str, pods: dict[int, SimulatedReplica]
) -> str:
    """The page of one node. Values are of the last collection; pod names are present (from 4.0.0 on)."""
    labels = []
    for gpu, _ in gpus:
        text = (
            f'gpu="{gpu.index}",UUID="{gpu.uuid}",pci_bus_id="00000000:{gpu.index + 7:02X}:00.0",'
            f'device="nvidia{gpu.index}",modelName="NVIDIA A100-SXM4-80GB",Hostname="{gpu.hostname}",'
            f'DCGM_FI_DRIVER_VERSION="580.105.08"'
        )
        pod = pods.get(gpu.number)
        if pod is not None:
            text += f',container="vllm",namespace="{namespace}",pod="{pod.name}"'
        labels.append(text)
    lines = []
    for family, kind, text, name, form in _DCGM:
        lines += [f"# HELP {family} {text}", f"# TYPE {family} {kind}"]
        values = [getattr(reading, name) for _, reading in gpus]
        lines += [f"{family}{{{label}}} {form.format(value)}" for label, value in zip(labels, values, strict=True)]
    return "\n".join(lines) + "\n"
