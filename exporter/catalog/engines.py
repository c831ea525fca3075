"""Inference engines' words: vLLM (also through Ray), SGLang, Triton (with vLLM and TensorRT-LLM backends), llama.cpp.

One queue per model. What an engine splits for its own reasons (data-parallel engines, versions of a model, reasons of
finishing) is added up here; what it prints more than once (tensor-parallel ranks, a priority's share of a total, a
family under its old and its new name) is counted once, and of copies that disagree the largest counts.

Worked example: `sglang:num_queue_reqs{model_name="m",dp_rank="0",tp_rank="0"} 2`, the same of `dp_rank="1"` 3 and of
`dp_rank="1",tp_rank="1"` 3 (a second rank of the same engine) make 5 requests waiting for `Queue("m")`.

More inference engines' words: TGI, TEI, trtllm-serve, NIM, LMDeploy, and two that have no queue: TorchServe, KServe.

What an engine does not say is left out rather than made up from something near it: a counter of microseconds spent in a
queue is no queue, and a histogram's count of batches is no number of requests running.

Worked example: `lmdeploy:num_requests_waiting{model_name="m"} 2` (in the engine) and
`lmdeploy:num_api_requests_waiting{model_name="m"} 3` (before it) make 5 requests waiting for `Queue("m")`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from exporter.model import Gpu, Quantity, Queue, Subject

from .kind import Kind, compile_table
from .schema import (
    BYTES,
    COUNT,
    COUNTER,
    FLAG,
    JOULES,
    RATIO,
    UNNAMED,
    WATTS,
    Columns,
    Combine,
    Key,
    KindTable,
    Labels,
    SeriesRow,
    Unit,
    as_it_is,
    label,
    one_queue_each,
    where,
)

Q = Quantity
# vLLM: vllm/v1/metrics/loggers.py, docs/design/metrics.md. V0 has no `engine` label; V1 prints one series per
# data-parallel engine. Left out on purpose: `num_requests_waiting_by_reason` (its sum is `num_requests_waiting`),
# `cpu_cache_usage_perc` (swap space), `*_created` (timestamps), `iteration_tokens_total` (a histogram).
_MODEL = label("model_name", "model")
_VLLM_KV = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")  # renamed; v0.10 prints both; 0..1 despite "perc"
_VLLM_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("vllm:num_requests_waiting",), _MODEL),
    SeriesRow(Q.REQUESTS_RUNNING, ("vllm:num_requests_running",), _MODEL),
    SeriesRow(
        Q.REQUESTS_FINISHED, ("vllm:request_success_total",), _MODEL, unit=COUNTER
    ),  # per engine and finished_reason
    SeriesRow(Q.TOKENS_PROMPT, ("vllm:prompt_tokens_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_GENERATED, ("vllm:generation_tokens_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.KV_CACHE_USED, _VLLM_KV, _MODEL, Combine.MEAN, RATIO),
    # A sleeping engine is not idle capacity; one sleeping engine of several makes the page's answer "asleep".
    SeriesRow(Q.ENGINE_AWAKE, ("vllm:engine_sleep_state",), _MODEL, Combine.MIN, FLAG, keep=where(sleep_state="awake")),
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


def _sglang(column: str, *names: str, combine: Combine = Combine.SUM, unit: Unit = COUNT) -> SeriesRow:
    return SeriesRow(column, names, _SGLANG_MODEL, combine, unit, keep=_total, part=_but_for_its_rank)


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
    SeriesRow(Q.REQUESTS_WAITING, ("nv_inference_pending_request_count",), _triton_model),
    SeriesRow(Q.REQUESTS_WAITING, _TRT_REQUESTS, _triton_model, keep=where(request_type="waiting")),
    SeriesRow(Q.REQUESTS_RUNNING, _TRT_REQUESTS, _triton_model, keep=where(request_type="scheduled")),
    SeriesRow(Q.REQUESTS_FINISHED, _FINISHED, _triton_model, unit=COUNTER),
    SeriesRow(
        Q.REQUESTS_FAILED, ("nv_inference_request_failure",), _triton_model, unit=COUNTER
    ),  # newer: one per reason
    SeriesRow(Q.KV_CACHE_USED, _TRT_KV, _triton_model, Combine.MEAN, RATIO, keep=_TRT_FRACTION),
    *(
        SeriesRow(row.column, row.names, _triton_model, row.combine, row.unit, row.keep)
        for row in _VLLM_ROWS
        if row.column in _VLLM_IN_TRITON
    ),
    SeriesRow(Q.GPU_UTILIZATION, ("nv_gpu_utilization",), _triton_gpu, Combine.COPY, RATIO),  # 0..1, not percent
    SeriesRow(Q.GPU_POWER, ("nv_gpu_power_usage",), _triton_gpu, Combine.COPY, WATTS),
    SeriesRow(Q.GPU_MEMORY_USED, ("nv_gpu_memory_used_bytes",), _triton_gpu, Combine.COPY, BYTES),
    SeriesRow(Q.GPU_MEMORY_TOTAL, ("nv_gpu_memory_total_bytes",), _triton_gpu, Combine.COPY, BYTES),
    SeriesRow(Q.GPU_ENERGY, ("nv_energy_consumption",), _triton_gpu, Combine.COPY, JOULES),
)

# llama.cpp: tools/server/README.md. No labels (a router in front may add `model`). `requests_deferred` waits for a
# slot, `requests_processing` has one. Newer servers no longer print the KV ratio; none counts finished requests.
_LLAMA_MODEL = label("model", "model_name")
_LLAMACPP_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("llamacpp:requests_deferred",), _LLAMA_MODEL),
    SeriesRow(Q.REQUESTS_RUNNING, ("llamacpp:requests_processing",), _LLAMA_MODEL),
    SeriesRow(Q.TOKENS_PROMPT, ("llamacpp:prompt_tokens_total",), _LLAMA_MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_GENERATED, ("llamacpp:tokens_predicted_total",), _LLAMA_MODEL, unit=COUNTER),
    SeriesRow(Q.KV_CACHE_USED, ("llamacpp:kv_cache_usage_ratio",), _LLAMA_MODEL, Combine.MEAN, RATIO),
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
    compile=partial(compile_table, "vllm", KindTable(_VLLM_ROWS, one_queue_each, as_it_is)),
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
    compile=partial(compile_table, "ray_vllm", KindTable(_RAY_VLLM_ROWS, one_queue_each, as_it_is)),
)
SGLANG = Kind(
    name="sglang",
    signs={"sglang:": 2},
    port=30000,
    path="/metrics",
    work=16.0,
    compile=partial(compile_table, "sglang", KindTable(_SGLANG_ROWS, one_queue_each, as_it_is)),
)
TRITON = Kind(
    name="triton",
    signs={"nv_inference_": 3, "nv_trt_llm_": 3, "nv_gpu_": 1},
    port=8002,
    path="/metrics",
    work=8.0,
    compile=partial(compile_table, "triton", KindTable(_TRITON_ROWS, _triton_subjects, _failed_reads)),
)
LLAMACPP = Kind(
    name="llamacpp",
    signs={"llamacpp:": 2},
    port=8080,
    path="/metrics",
    work=4.0,
    compile=partial(compile_table, "llamacpp", KindTable(_LLAMACPP_ROWS, one_queue_each, as_it_is)),
)


# TGI: docs/source/reference/metrics.md, backends/v3/src/queue.rs. No labels; the queue's gauge is printed from the
# first request on, so a fresh pod says nothing. Above --max-concurrent-requests requests are refused
# (`tgi_request_failure{err="overloaded"}`) and the queue does not grow. Tokens are sums of histograms.
_TGI_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("tgi_queue_size",), _MODEL),
    SeriesRow(Q.REQUESTS_RUNNING, ("tgi_batch_current_size",), _MODEL),
    SeriesRow(Q.REQUESTS_FINISHED, ("tgi_request_success", "tgi_request_success_total"), _MODEL, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, ("tgi_request_failure", "tgi_request_failure_total"), _MODEL, unit=COUNTER),  # per err
    SeriesRow(Q.TOKENS_PROMPT, ("tgi_request_input_length_sum",), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_GENERATED, ("tgi_request_generated_tokens_sum",), _MODEL, unit=COUNTER),
)

# TEI: text-embeddings-inference core/src/queue.rs, core/src/infer.rs. Nothing tells how many run: te_batch_next_size is
# a histogram. Finished requests are counted per method (single, batch).
_TEI_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("te_queue_size",), _MODEL),
    SeriesRow(Q.REQUESTS_FINISHED, ("te_request_success", "te_request_success_total"), _MODEL, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, ("te_request_failure", "te_request_failure_total"), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_PROMPT, ("te_request_input_length_sum",), _MODEL, unit=COUNTER),
)

# trtllm-serve: tensorrt_llm/metrics/collector.py; gauges from 1.3 on, with `return_perf_metrics`. Early versions print
# latency histograms without a prefix and nothing that is read here. /metrics is JSON, taken away by whoever polls it.
_TRTLLM_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("trtllm_num_requests_waiting",), _MODEL),
    SeriesRow(Q.REQUESTS_RUNNING, ("trtllm_num_requests_running",), _MODEL),
    SeriesRow(Q.REQUESTS_FINISHED, ("trtllm_request_success_total",), _MODEL, unit=COUNTER),  # per finished_reason
    SeriesRow(Q.TOKENS_PROMPT, ("trtllm_prompt_tokens_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_GENERATED, ("trtllm_generation_tokens_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.KV_CACHE_USED, ("trtllm_kv_cache_utilization",), _MODEL, Combine.MEAN, RATIO),
)

# NIM for LLMs: docs.nvidia.com/nim observability; /v1/metrics (24.05: /metrics). Names without a prefix, as anybody
# might have them: only `num_request_max`, which nobody else prints, gives a page away. Later versions print vLLM's own.
_NIM_KV = ("gpu_cache_usage_perc", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")  # 0..1 despite "perc"
_NIM_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("num_requests_waiting", "vllm:num_requests_waiting"), _MODEL),
    SeriesRow(Q.REQUESTS_RUNNING, ("num_requests_running", "vllm:num_requests_running"), _MODEL),
    SeriesRow(Q.REQUESTS_FINISHED, ("request_success_total", "vllm:request_success_total"), _MODEL, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, ("request_failure_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_PROMPT, ("prompt_tokens_total", "vllm:prompt_tokens_total"), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_GENERATED, ("generation_tokens_total", "vllm:generation_tokens_total"), _MODEL, unit=COUNTER),
    SeriesRow(Q.KV_CACHE_USED, _NIM_KV, _MODEL, Combine.MEAN, RATIO),
    SeriesRow("limit", ("num_request_max",), _MODEL),  # read to know the page by
)

# LMDeploy: lmdeploy/metrics/loggers.py, metrics_processor.py. A request waits for a free handle in front of the engine
# (api_requests_waiting), then for the scheduler. `num_api_requests_routed` has passed the first wait and is either in
# the second or running: not one more. One series per `engine`.
_LMDEPLOY_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("lmdeploy:num_requests_waiting",), _MODEL),
    SeriesRow(Q.REQUESTS_WAITING, ("lmdeploy:num_api_requests_waiting",), _MODEL),
    SeriesRow(Q.REQUESTS_RUNNING, ("lmdeploy:num_requests_running",), _MODEL),
    SeriesRow(Q.REQUESTS_FINISHED, ("lmdeploy:request_success_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_PROMPT, ("lmdeploy:prompt_tokens_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_GENERATED, ("lmdeploy:generation_tokens_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.KV_CACHE_USED, ("lmdeploy:gpu_cache_usage_perc",), _MODEL, Combine.MEAN, RATIO),
)

# TorchServe: docs/metrics_api.md, with metrics_mode=prometheus. No depth of any queue: ts_queue_latency_microseconds is
# a counter of time, and QueueTime the host's last request, which stays when nobody asks any more.
_TORCHSERVE_ROWS = (SeriesRow(Q.REQUESTS_FINISHED, ("ts_inference_requests_total",), _MODEL, unit=COUNTER),)

# KServe's own Python server: kserve/metrics.py, histograms of each step. In raw mode the page of vLLM, Triton or
# whatever serves is the one to ask; this one only tells that somebody was here.
_KSERVE_ROWS = (SeriesRow(Q.REQUESTS_FINISHED, ("request_predict_seconds_count",), _MODEL, unit=COUNTER),)

TGI = Kind(
    name="tgi",
    signs={"tgi_": 2},
    port=80,  # the image's PORT
    path="/metrics",
    work=16.0,
    compile=partial(compile_table, "tgi", KindTable(_TGI_ROWS, one_queue_each, as_it_is)),
)
TEI = Kind(
    name="tei",
    signs={"te_queue_size": 2, "te_request_": 2, "te_embed_": 2, "te_batch_": 2},
    port=80,  # the image's PORT
    path="/metrics",
    work=32.0,
    compile=partial(compile_table, "tei", KindTable(_TEI_ROWS, one_queue_each, as_it_is)),
)
TRTLLM = Kind(
    name="trtllm",
    signs={"trtllm_": 2},
    port=8000,
    path="/prometheus/metrics",
    work=16.0,
    compile=partial(compile_table, "trtllm", KindTable(_TRTLLM_ROWS, one_queue_each, as_it_is)),
)
NIM = Kind(
    name="nim",
    signs={"num_request_max": 1},
    port=8000,
    path="/v1/metrics",
    work=16.0,
    compile=partial(compile_table, "nim", KindTable(_NIM_ROWS, one_queue_each, as_it_is)),
)
LMDEPLOY = Kind(
    name="lmdeploy",
    signs={"lmdeploy:": 2},
    port=23333,
    path="/metrics",
    work=16.0,
    compile=partial(compile_table, "lmdeploy", KindTable(_LMDEPLOY_ROWS, one_queue_each, as_it_is)),
)
TORCHSERVE = Kind(
    name="torchserve",
    signs={"ts_inference_": 2, "ts_queue_latency_": 2},
    port=8082,
    path="/metrics",
    work=None,
    compile=partial(compile_table, "torchserve", KindTable(_TORCHSERVE_ROWS, one_queue_each, as_it_is)),
)
KSERVE = Kind(
    name="kserve",
    signs={"request_predict_seconds": 1},
    port=8080,
    path="/metrics",
    work=None,
    compile=partial(compile_table, "kserve", KindTable(_KSERVE_ROWS, one_queue_each, as_it_is)),
)
