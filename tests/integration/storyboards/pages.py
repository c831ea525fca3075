"""Metrics text of the simulated targets, as their vendors print it: an engine, a gateway that queues requests, a node's
GPUs.
"""

from __future__ import annotations

# dcgm-exporter's default collection interval; its values are constant in between.
COLLECT_S = 30.0
POWER_IDLE_W, POWER_BUSY_W = 90.0, 600.0
GPU_MEMORY_MIB = 70_000  # held from the loading of the model on, with or without requests


def engine_page(pod):
    """vLLM's metrics."""
    labels = '{model_name="m",engine="0"}'
    return (
        f"vllm:num_requests_waiting{labels} {len(pod.waiting)}\n"
        f"vllm:num_requests_running{labels} {len(pod.running)}\n"
        f"vllm:kv_cache_usage_perc{labels} {len(pod.running) / (2 * pod.slots):.4f}\n"
        f"vllm:request_success_total{labels} {pod.finished}\n"
        f"vllm:generation_tokens_total{labels} {pod.tokens}\n"
    )


def endpoint_picker_page(held, ready):
    """Metrics of an endpoint picker with flow control: it queues requests while no pod is ready."""
    return (
        f'inference_extension_flow_control_queue_size{{fairness_id="",priority="0",inference_pool="p"}} {held}\n'
        f'inference_pool_ready_pods{{name="p"}} {ready}\n'
    )


def gpu_page(readings):
    """dcgm-exporter's metrics. readings: (GPU, pod or None, activity 0..1, joules since the start of the exporter or
    driver).
    """
    lines = []
    for uuid, pod, active, joules in readings:
        labels = f'UUID="{uuid}",modelName="NVIDIA H100 80GB HBM3"'
        labels += f',namespace="ai",pod="{pod}",container="c"' if pod else ""
        lines += [
            f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} {active:.3f}\n",
            f"DCGM_FI_DEV_FB_USED{{{labels}}} {GPU_MEMORY_MIB if pod else 0}\n",
            f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}}} {joules * 1000.0:.0f}\n",
        ]
    return "".join(lines)
