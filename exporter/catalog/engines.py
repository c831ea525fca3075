"""Inference engines' words: vLLM (also through Ray), SGLang, Triton (with vLLM and TensorRT-LLM backends), llama.cpp.

One queue per model. What an engine splits for its own reasons (data-parallel engines, versions of a model, reasons of
finishing) is added up here; what it prints more than once (tensor-parallel ranks, a priority's share of a total, a
family under its old and its new name) is counted once, and of copies that disagree the largest counts.

Worked example: `sglang:num_queue_reqs{model_name="m",dp_rank="0",tp_rank="0"} 2`, the same of `dp_rank="1"` 3 and of
`dp_rank="1",tp_rank="1"` 3 (a second rank of the same engine) make 5 requests waiting for `Queue("m")`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from exporter.model import Gpu, Quantity, Queue, Subject

from .kind import Kind, compile_table
from .naming import UNNAMED, as_it_is, one_queue_each
from .words import (
    BYTES,
    COUNT,
    COUNTER,
    FLAG,
    JOULES,
    RATIO,
    WATTS,
    Columns,
    Combine,
    Key,
    Labels,
    Row,
    Table,
    Unit,
    label,
    where,
)

Q = Quantity
# vLLM: vllm/v1/metrics/loggers.py, docs/design/metrics.md. V0 has no `engine` label; V1 prints one series per
# data-parallel engine. Left out on purpose: `num_requests_waiting_by_reason` (its sum is `num_requests_waiting`),
# `cpu_cache_usage_perc` (swap space), `*_created` (timestamps), `iteration_tokens_total` (a histogram).
_MODEL = label("model_name", "model")
_VLLM_KV = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")  # renamed; v0.10 prints both; 0..1 despite "perc"
_VLLM_ROWS = (
    Row(Q.REQUESTS_WAITING, ("vllm:num_requests_waiting",), _MODEL),
    Row(Q.REQUESTS_RUNNING, ("vllm:num_requests_running",), _MODEL),
    Row(Q.REQUESTS_FINISHED, ("vllm:request_success_total",), _MODEL, unit=COUNTER),  # per engine and finished_reason
    Row(Q.TOKENS_PROMPT, ("vllm:prompt_tokens_total",), _MODEL, unit=COUNTER),
    Row(Q.TOKENS_GENERATED, ("vllm:generation_tokens_total",), _MODEL, unit=COUNTER),
    Row(Q.KV_CACHE_USED, _VLLM_KV, _MODEL, Combine.MEAN, RATIO),
    # A sleeping engine is not idle capacity; one sleeping engine of several makes the page's answer "asleep".
    Row(Q.ENGINE_AWAKE, ("vllm:engine_sleep_state",), _MODEL, Combine.MIN, FLAG, keep=where(sleep_state="awake")),
)


# SGLang: python/sglang/srt/observability/{metrics_collector,scheduler_metrics_mixin}.py. Each rank of an engine has a
# scheduler of its own. With `--enable-metrics-for-all-schedulers` all of them report, otherwise the first tensor rank
# of each engine does, and every pipeline and context rank of it. All see the same requests, at moments of their own,
# so of copies that disagree the largest counts. An engine is a data-parallel rank, and only those add up: with
# data-parallel attention tp_rank 4 of 8 may be engine 1, and managers/data_parallel_controller.py gives it a dp_rank.
# So copies are series that differ in nothing but these labels.
_RANKS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})


def _but_for_its_rank(labels: Labels) -> Key:
    return tuple(sorted(f"{name}={value}" for name, value in labels.items() if name not in _RANKS))


def _total(members: Sequence[Labels]) -> list[int]:
    """With priority scheduling the total is `priority=""`, and each priority is one more series."""
    return [position for position, labels in enumerate(members) if not labels.get("priority")]


# A request waits in exactly one of these queues: for its grammar, for
# the scheduler, and when prefill and decode are apart, on a prefill server for its peer (bootstrap, once `prealloc`) or
# for the transfer of its KV cache (inflight), on a decode server for memory (prealloc) or for that transfer.
_SGLANG_QUEUES = (
    ("sglang:num_queue_reqs",),
    ("sglang:num_grammar_queue_reqs",),
    ("sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_prealloc_queue_reqs"),
    ("sglang:num_prefill_inflight_queue_reqs",),
    ("sglang:num_decode_prealloc_queue_reqs",),
    ("sglang:num_decode_transfer_queue_reqs",),
)
_SGLANG_MODEL = label("model_name", "model", "name")  # early versions: `name`


def _sglang(column: str, *names: str, combine: Combine = Combine.SUM, unit: Unit = COUNT) -> Row:
    return Row(column, names, _SGLANG_MODEL, combine, unit, keep=_total, part=_but_for_its_rank)


_SGLANG_ROWS = (
    *(_sglang(Q.REQUESTS_WAITING, *names) for names in _SGLANG_QUEUES),
    _sglang(Q.REQUESTS_RUNNING, "sglang:num_running_reqs"),
    _sglang(Q.REQUESTS_FINISHED, "sglang:num_requests_total", unit=COUNTER),
    _sglang(Q.REQUESTS_FAILED, "sglang:num_aborted_requests_total", unit=COUNTER),
    _sglang(Q.TOKENS_PROMPT, "sglang:prompt_tokens_total", unit=COUNTER),
    _sglang(Q.TOKENS_GENERATED, "sglang:generation_tokens_total", unit=COUNTER),
    _sglang(Q.KV_CACHE_USED, "sglang:token_usage", combine=Combine.MEAN, unit=RATIO),
)


def _triton_model(labels: Labels) -> Key:
    return ("model", labels.get("model") or labels.get("model_name", ""))


def _triton_gpu(labels: Labels) -> Key:
    return ("gpu", labels.get("gpu_uuid", ""))


def _triton_subjects(keys: Sequence[Key]) -> list[Subject | None]:
    return [Gpu(name) if what == "gpu" else Queue(name or UNNAMED) for what, name in keys]


def _failed_reads(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
    """Triton sets a GPU's gauges to 0 when NVML fails. A live GPU draws power, so 0 W at 0 % is a failed read."""
    if Q.GPU_UTILIZATION in columns and Q.GPU_POWER in columns:
        failed = (columns[Q.GPU_UTILIZATION] == 0.0) & (columns[Q.GPU_POWER] == 0.0)
        for column in (Q.GPU_UTILIZATION, Q.GPU_POWER):
            columns[column] = np.where(failed, np.nan, columns[column])
    return columns, subjects


# Triton: docs/user_guide/metrics.md, core src/metrics.cc. A model's versions are added up. A request is first pending
# in Triton, then waiting in its backend, so those add; a finished one is counted by both, so those do not.
# Old servers have no pending gauge: then what waits is unknown. `nv_inference_queue_duration_us` is a counter of µs.
_VLLM_IN_TRITON = {Q.REQUESTS_WAITING, Q.REQUESTS_RUNNING, Q.TOKENS_PROMPT, Q.TOKENS_GENERATED, Q.KV_CACHE_USED}
_TRT_REQUESTS = ("nv_trt_llm_request_metrics",)
_TRT_KV = ("nv_trt_llm_kv_cache_block_metrics",)
_TRT_FRACTION = where(kv_cache_block_type="fraction")
_FINISHED = ("nv_inference_request_success", "vllm:request_success_total")
_TRITON_ROWS = (
    Row(Q.REQUESTS_WAITING, ("nv_inference_pending_request_count",), _triton_model),
    Row(Q.REQUESTS_WAITING, _TRT_REQUESTS, _triton_model, keep=where(request_type="waiting")),
    Row(Q.REQUESTS_RUNNING, _TRT_REQUESTS, _triton_model, keep=where(request_type="scheduled")),
    Row(Q.REQUESTS_FINISHED, _FINISHED, _triton_model, unit=COUNTER),
    Row(Q.REQUESTS_FAILED, ("nv_inference_request_failure",), _triton_model, unit=COUNTER),  # newer: one per reason
    Row(Q.KV_CACHE_USED, _TRT_KV, _triton_model, Combine.MEAN, RATIO, keep=_TRT_FRACTION),
    *(
        Row(row.column, row.names, _triton_model, row.combine, row.unit, row.keep)
        for row in _VLLM_ROWS
        if row.column in _VLLM_IN_TRITON
    ),
    Row(Q.GPU_UTILIZATION, ("nv_gpu_utilization",), _triton_gpu, Combine.COPY, RATIO),  # 0..1, not percent
    Row(Q.GPU_POWER, ("nv_gpu_power_usage",), _triton_gpu, Combine.COPY, WATTS),
    Row(Q.GPU_MEMORY_USED, ("nv_gpu_memory_used_bytes",), _triton_gpu, Combine.COPY, BYTES),
    Row(Q.GPU_MEMORY_TOTAL, ("nv_gpu_memory_total_bytes",), _triton_gpu, Combine.COPY, BYTES),
    Row(Q.GPU_ENERGY, ("nv_energy_consumption",), _triton_gpu, Combine.COPY, JOULES),
)

# llama.cpp: tools/server/README.md. No labels (a router in front may add `model`). `requests_deferred` waits for a
# slot, `requests_processing` has one. Newer servers no longer print the KV ratio; none counts finished requests.
_LLAMA_MODEL = label("model", "model_name")
_LLAMACPP_ROWS = (
    Row(Q.REQUESTS_WAITING, ("llamacpp:requests_deferred",), _LLAMA_MODEL),
    Row(Q.REQUESTS_RUNNING, ("llamacpp:requests_processing",), _LLAMA_MODEL),
    Row(Q.TOKENS_PROMPT, ("llamacpp:prompt_tokens_total",), _LLAMA_MODEL, unit=COUNTER),
    Row(Q.TOKENS_GENERATED, ("llamacpp:tokens_predicted_total",), _LLAMA_MODEL, unit=COUNTER),
    Row(Q.KV_CACHE_USED, ("llamacpp:kv_cache_usage_ratio",), _LLAMA_MODEL, Combine.MEAN, RATIO),
)

# vLLM whose metrics go through Ray (Ray Serve LLM, RayPrometheusStatLogger): vllm/v1/metrics/ray_wrappers.py; the
# prefix is Ray's. The colon is an underscore since Ray's metrics are OpenTelemetry's. One series per WorkerId and
# ReplicaId, all of a node in one response, and all are parts. Of counters Ray may print a gauge without `_total` too.
_RAY_VLLM_ROWS = tuple(
    replace(row, names=tuple(each for name in row.names for each in (f"ray_{name}", f"ray_{name.replace(':', '_')}")))
    for row in _VLLM_ROWS
)

VLLM = Kind(
    name="vllm",
    signs={"vllm:": 2},
    port=8000,
    path="/metrics",
    work=16.0,
    compile=partial(compile_table, "vllm", Table(_VLLM_ROWS, one_queue_each, as_it_is)),
)
RAY_VLLM = Kind(
    name="ray_vllm",
    signs={
        "ray_vllm:": 1,
        "ray_vllm_": 1,
    },  # where Ray Serve speaks too, its queue in front of the engines is the whole
    port=8080,  # --metrics-export-port as KubeRay sets it; Ray alone picks a free one
    path="/metrics",
    work=16.0,
    compile=partial(compile_table, "ray_vllm", Table(_RAY_VLLM_ROWS, one_queue_each, as_it_is)),
)
SGLANG = Kind(
    name="sglang",
    signs={"sglang:": 2},
    port=30000,
    path="/metrics",
    work=16.0,
    compile=partial(compile_table, "sglang", Table(_SGLANG_ROWS, one_queue_each, as_it_is)),
)
TRITON = Kind(
    name="triton",
    signs={"nv_inference_": 3, "nv_trt_llm_": 3, "nv_gpu_": 1},
    port=8002,
    path="/metrics",
    work=8.0,
    compile=partial(compile_table, "triton", Table(_TRITON_ROWS, _triton_subjects, _failed_reads)),
)
LLAMACPP = Kind(
    name="llamacpp",
    signs={"llamacpp:": 2},
    port=8080,
    path="/metrics",
    work=4.0,
    compile=partial(compile_table, "llamacpp", Table(_LLAMACPP_ROWS, one_queue_each, as_it_is)),
)
