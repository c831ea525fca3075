"""Maps the metrics of inference engines: vLLM (also through Ray), SGLang, Triton (with vLLM and TensorRT-LLM backends),
llama.cpp, TGI, TEI, trtllm-serve, NIM, LMDeploy, and two without a queue, TorchServe and KServe.

One queue per model. What an engine splits (data-parallel engines, versions of a model, finish reasons) is added up.
What it exposes more than once (tensor-parallel ranks, a priority's share of a total, a family under its old and its new
name) is counted once; of copies that disagree the largest counts. Nothing is derived from a near quantity: a counter of
microseconds spent in a queue is no queue, and a histogram's count of batches is no number of requests running.

Worked example: `sglang:num_queue_reqs{model_name="m",dp_rank="0",tp_rank="0"} 2`, the same of `dp_rank="1"` 3 and of
`dp_rank="1",tp_rank="1"` 3 (a second rank of the same engine) make 5 requests waiting for `Queue("m")`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from exporter.histogram import Latency
from exporter.model import Gpu, Quantity, Queue, Subject

from .kind import SIZED_BY, Kind
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
    Labels,
    SeriesRow,
    Unit,
    label,
    matching,
    where,
)

Q = Quantity


def _times(queued: str, served: str, key: Callable[[Labels], Key]) -> tuple[SeriesRow, ...]:
    """The rows of two histograms of seconds: in the queue, and from its end to the last token."""
    return tuple(
        SeriesRow(column, (f"{name}_{ending}",), key, unit=COUNTER)
        for name, columns in (
            (queued, (Q.QUEUED_COUNT, Q.QUEUED_SECONDS)),
            (served, (Q.SERVED_COUNT, Q.SERVED_SECONDS)),
        )
        for column, ending in zip(columns, ("count", "sum"), strict=True)
    )


# vLLM: vllm/v1/metrics/loggers.py, docs/design/metrics.md. V0 has no `engine` label; V1 exposes one series per
# data-parallel engine. Left out on purpose: `num_requests_waiting_by_reason` (its sum is `num_requests_waiting`),
# `cpu_cache_usage_perc` (swap space), `*_created` (timestamps), `iteration_tokens_total` (a histogram).
# A request above `--max-num-queued-reqs` is answered with 503, and only `admission_rejections_total` counts it (0.32
# has it, per reason and not per engine). One that its client leaves is not in `request_success_total` under any reason.
# `prompt_tokens_total` is the length of the prompts. `prompt_tokens_by_source_total` (vllm-project/vllm#33290) divides
# it into what was computed, found in the prefix cache, and received from another engine; of each prompt at least one
# token is computed, so a response with other sources alone leaves the computed ones unknown.
_MODEL = label("model_name", "model")
_VLLM_KV = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")  # renamed; v0.10 has both; 0..1 despite "perc"
_VLLM_GAPS = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")  # renamed in v0.11
_VLLM_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("vllm:num_requests_waiting",), _MODEL),
    SeriesRow(Q.REQUESTS_RUNNING, ("vllm:num_requests_running",), _MODEL),
    # per engine and finished_reason
    SeriesRow(Q.REQUESTS_FINISHED, ("vllm:request_success_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, ("vllm:admission_rejections_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_PROMPT, ("vllm:prompt_tokens_total",), _MODEL, unit=COUNTER),
    SeriesRow(
        Q.TOKENS_COMPUTED,
        ("vllm:prompt_tokens_by_source_total",),
        _MODEL,
        unit=COUNTER,
        keep=where(source="local_compute"),
    ),
    SeriesRow(Q.TOKENS_GENERATED, ("vllm:generation_tokens_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.FIRST_TOKENS, ("vllm:time_to_first_token_seconds_count",), _MODEL, unit=COUNTER),
    SeriesRow(Q.ITL_COUNT, tuple(f"{name}_count" for name in _VLLM_GAPS), _MODEL, unit=COUNTER),
    SeriesRow(Q.ITL_SECONDS, tuple(f"{name}_sum" for name in _VLLM_GAPS), _MODEL, unit=COUNTER),
    SeriesRow(Q.KV_CACHE_USED, _VLLM_KV, _MODEL, Combine.MEAN, RATIO),
    SeriesRow(Q.PREEMPTIONS, ("vllm:num_preemptions_total",), _MODEL, unit=COUNTER),
    *_times("vllm:request_queue_time_seconds", "vllm:request_inference_time_seconds", _MODEL),
    # A sleeping engine is not idle capacity; one sleeping engine of several counts as asleep.
    SeriesRow(Q.ENGINE_AWAKE, ("vllm:engine_sleep_state",), _MODEL, Combine.MIN, FLAG, keep=where(sleep_state="awake")),
)

# One observation per finished request since v0.11; before, and in SGLang, one per token: late requests are then those
# that the late tokens would make.
_VLLM_HISTOGRAMS = (
    SeriesRow(Latency.TTFT, ("vllm:time_to_first_token_seconds_bucket",), _MODEL),
    SeriesRow(
        Latency.TPOT,
        tuple(f"{name}_bucket" for name in ("vllm:request_time_per_output_token_seconds", *_VLLM_GAPS)),
        _MODEL,
    ),
)

VLLM = Kind(
    "vllm", {"vllm:": 2}, port=8000, work=16.0, rows=_VLLM_ROWS, histograms=_VLLM_HISTOGRAMS,
    paired=(Q.REQUESTS_WAITING, Q.REQUESTS_RUNNING),  # made together, for each engine
    forgets=True,
)  # fmt: skip


# SGLang: python/sglang/srt/observability/{metrics_collector,scheduler_metrics_mixin}.py. Each rank of an engine has a
# scheduler of its own. With `--enable-metrics-for-all-schedulers` all of them report, otherwise the first tensor rank
# of each engine does, and every pipeline and context rank of it. All count the same requests, each at its own moment,
# so of copies that disagree the largest counts. An engine is a data-parallel rank, and only those add up: with
# data-parallel attention tp_rank 4 of 8 may be engine 1, and managers/data_parallel_controller.py gives it a dp_rank.
# So copies are series that differ only in these labels.
_RANKS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})


def _without_rank(labels: Labels) -> Key:
    return tuple(sorted(f"{name}={value}" for name, value in labels.items() if name not in _RANKS))


# With priority scheduling the total is `priority=""`, and each priority is one more series.
_TOTAL = matching(lambda labels: not labels.get("priority"))
# A request waits in exactly one of these queues: for its grammar, for the scheduler, and with prefill and decode apart
# on a prefill server for its peer (bootstrap, once `prealloc`) or for the transfer of its KV cache (inflight), on a
# decode server for memory (prealloc) or for that transfer.
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
    return SeriesRow(column, names, _SGLANG_MODEL, combine, unit, keep=_TOTAL, part=_without_rank)


_SGLANG_GAPS = ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds")
_SGLANG_ROWS = (
    *(_sglang(Q.REQUESTS_WAITING, *names) for names in _SGLANG_QUEUES),
    _sglang(Q.REQUESTS_RUNNING, "sglang:num_running_reqs"),
    _sglang(Q.REQUESTS_FINISHED, "sglang:num_requests_total", unit=COUNTER),
    _sglang(Q.REQUESTS_FAILED, "sglang:num_aborted_requests_total", unit=COUNTER),
    _sglang(Q.TOKENS_PROMPT, "sglang:prompt_tokens_total", unit=COUNTER),
    # Observed with the counter before, when a request ends: its prompt without what a cache had.
    _sglang(Q.TOKENS_COMPUTED, "sglang:uncached_prompt_tokens_histogram_sum", unit=COUNTER),
    _sglang(Q.TOKENS_GENERATED, "sglang:generation_tokens_total", unit=COUNTER),
    _sglang(Q.FIRST_TOKENS, "sglang:time_to_first_token_seconds_count", unit=COUNTER),
    _sglang(Q.ITL_COUNT, *(f"{name}_count" for name in _SGLANG_GAPS), unit=COUNTER),
    _sglang(Q.ITL_SECONDS, *(f"{name}_sum" for name in _SGLANG_GAPS), unit=COUNTER),
    # A request that is retracted waits again. `num_retracted_reqs` is a gauge of the last batch.
    _sglang(Q.PREEMPTIONS, "sglang:num_retracted_requests_total", unit=COUNTER),
    # Times in service are only known with the queue (e2e_request_latency_seconds) or by stage.
    _sglang(Q.QUEUED_COUNT, "sglang:queue_time_seconds_count", unit=COUNTER),
    _sglang(Q.QUEUED_SECONDS, "sglang:queue_time_seconds_sum", unit=COUNTER),
    _sglang(Q.KV_CACHE_USED, "sglang:token_usage", combine=Combine.MEAN, unit=RATIO),
)
_SGLANG_HISTOGRAMS = (
    _sglang(Latency.TTFT, "sglang:time_to_first_token_seconds_bucket"),
    _sglang(Latency.TPOT, *(f"{name}_bucket" for name in _SGLANG_GAPS)),
)
SGLANG = Kind("sglang", {"sglang:": 2}, port=30000, work=16.0, rows=_SGLANG_ROWS, histograms=_SGLANG_HISTOGRAMS)


def _triton_model(labels: Labels) -> Key:
    return ("model", labels.get("model") or labels.get("model_name", ""))


def _triton_gpu(labels: Labels) -> Key:
    return ("gpu", labels.get("gpu_uuid", ""))


def _triton_subjects(keys: Sequence[Key]) -> list[Subject | None]:
    return [Gpu(name) if what == "gpu" else Queue(name or UNNAMED) for what, name in keys]


def _failed_reads(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
    """Triton sets a GPU's gauges to 0 if NVML fails. A live GPU draws power, so 0 W at 0 % is a failed read."""
    if Q.GPU_UTILIZATION in columns and Q.GPU_POWER in columns:
        failed = (columns[Q.GPU_UTILIZATION] == 0.0) & (columns[Q.GPU_POWER] == 0.0)
        for column in (Q.GPU_UTILIZATION, Q.GPU_POWER):
            columns[column] = np.where(failed, np.nan, columns[column])
    return columns, subjects


# Triton: docs/user_guide/metrics.md, core src/metrics.cc. A model's versions are added up. A request is first pending
# in Triton, then waiting in its backend, so those add. Old servers have no pending gauge: then waiting is unknown.
# Its durations are counters of µs, summed over the successful requests; the compute duration of a batch counts for each
# of its requests.
# Its vLLM backend: triton-inference-server/vllm_backend src/utils/metrics.py. It exposes vLLM's counters of tokens and
# the latency histograms under the labels `model` and `version`, and never had a gauge of requests or of the KV cache.
# Its time per output token is vLLM's time between two tokens. Its own buckets end at 10 s and 2.5 s.
_VLLM_IN_TRITON = {Q.TOKENS_PROMPT, Q.TOKENS_GENERATED, Q.FIRST_TOKENS, Q.ITL_COUNT, Q.ITL_SECONDS}
_MICROSECONDS = Unit(per=1e6, high=1e18)
_TRT_REQUESTS = ("nv_trt_llm_request_metrics",)
_TRT_KV = ("nv_trt_llm_kv_cache_block_metrics",)
_TRT_FRACTION = where(kv_cache_block_type="fraction")
_TRITON_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("nv_inference_pending_request_count",), _triton_model),
    SeriesRow(Q.REQUESTS_WAITING, _TRT_REQUESTS, _triton_model, keep=where(request_type="waiting")),
    SeriesRow(Q.REQUESTS_RUNNING, _TRT_REQUESTS, _triton_model, keep=where(request_type="scheduled")),
    SeriesRow(Q.REQUESTS_FINISHED, ("nv_inference_request_success",), _triton_model, unit=COUNTER),
    # newer: one per reason
    SeriesRow(Q.REQUESTS_FAILED, ("nv_inference_request_failure",), _triton_model, unit=COUNTER),
    SeriesRow(Q.QUEUED_COUNT, ("nv_inference_request_success",), _triton_model, unit=COUNTER),
    SeriesRow(Q.QUEUED_SECONDS, ("nv_inference_queue_duration_us",), _triton_model, unit=_MICROSECONDS),
    SeriesRow(Q.SERVED_COUNT, ("nv_inference_request_success",), _triton_model, unit=COUNTER),
    *(
        SeriesRow(Q.SERVED_SECONDS, (f"nv_inference_compute_{step}_duration_us",), _triton_model, unit=_MICROSECONDS)
        for step in ("input", "infer", "output")
    ),
    SeriesRow(Q.KV_CACHE_USED, _TRT_KV, _triton_model, Combine.MEAN, RATIO, keep=_TRT_FRACTION),
    *(replace(row, key=_triton_model) for row in _VLLM_ROWS if row.column in _VLLM_IN_TRITON),
    SeriesRow(Q.GPU_UTILIZATION, ("nv_gpu_utilization",), _triton_gpu, Combine.COPY, RATIO),  # 0..1, not percent
    SeriesRow(Q.GPU_POWER, ("nv_gpu_power_usage",), _triton_gpu, Combine.COPY, WATTS),
    SeriesRow(Q.GPU_MEMORY_USED, ("nv_gpu_memory_used_bytes",), _triton_gpu, Combine.COPY, BYTES),
    SeriesRow(Q.GPU_MEMORY_TOTAL, ("nv_gpu_memory_total_bytes",), _triton_gpu, Combine.COPY, BYTES),
    SeriesRow(Q.GPU_ENERGY, ("nv_energy_consumption",), _triton_gpu, Combine.COPY, JOULES),
)
TRITON = Kind(
    "triton", {"nv_inference_": 3, "nv_trt_llm_": 3, "nv_gpu_": 1}, port=8002, work=8.0, rows=_TRITON_ROWS,
    subjects=_triton_subjects, finish=_failed_reads,
    histograms=tuple(replace(row, key=_triton_model) for row in _VLLM_HISTOGRAMS),
    unsized="Triton's vLLM backend exposes no running requests",
)  # fmt: skip

# llama.cpp: tools/server/README.md. No labels (a router in front may add `model`). `requests_deferred` waits for a
# slot, `requests_processing` has one. Newer servers have no KV ratio; none counts finished requests or has a histogram.
_LLAMA_MODEL = label("model", "model_name")
_LLAMACPP_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("llamacpp:requests_deferred",), _LLAMA_MODEL),
    SeriesRow(Q.REQUESTS_RUNNING, ("llamacpp:requests_processing",), _LLAMA_MODEL),
    SeriesRow(Q.TOKENS_PROMPT, ("llamacpp:prompt_tokens_total",), _LLAMA_MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_GENERATED, ("llamacpp:tokens_predicted_total",), _LLAMA_MODEL, unit=COUNTER),
    SeriesRow(Q.KV_CACHE_USED, ("llamacpp:kv_cache_usage_ratio",), _LLAMA_MODEL, Combine.MEAN, RATIO),
)
LLAMACPP = Kind("llamacpp", {"llamacpp:": 2}, port=8080, work=4.0, rows=_LLAMACPP_ROWS)

# vLLM with metrics through Ray (Ray Serve LLM, RayPrometheusStatLogger): vllm/v1/metrics/ray_wrappers.py; the
# prefix is Ray's. The colon is an underscore since Ray's metrics are OpenTelemetry's. One series per WorkerId and
# ReplicaId, all of a node in one response, and all are parts. Of counters Ray may expose a gauge without `_total` too.
_RAY_VLLM_ROWS, _RAY_VLLM_HISTOGRAMS = (
    tuple(
        replace(
            row, names=tuple(each for name in row.names for each in (f"ray_{name}", f"ray_{name.replace(':', '_')}"))
        )
        for row in rows
    )
    for rows in (_VLLM_ROWS, _VLLM_HISTOGRAMS)
)
RAY_VLLM = Kind(
    "ray_vllm",
    {"ray_vllm:": 1, "ray_vllm_": 1},  # beside Ray Serve's metrics, its queue in front of the engines is the whole
    port=8080,  # --metrics-export-port as KubeRay sets it; Ray alone picks a free one
    work=16.0, rows=_RAY_VLLM_ROWS, histograms=_RAY_VLLM_HISTOGRAMS, forgets=True,
)  # fmt: skip


# TGI: docs/source/reference/metrics.md, backends/v3/src/queue.rs. No labels; the queue's gauge is exposed from the
# first request on, so a fresh pod has none. Above --max-concurrent-requests requests are rejected
# (`tgi_request_failure{err="overloaded"}`) and the queue does not grow. Tokens are sums of histograms. There is no
# histogram of the time to first token, and `tgi_request_mean_time_per_token_duration` divides the whole inference, the
# prompt included, by the tokens (router/src/server.rs): neither is a latency of an SLO.
_TGI_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("tgi_queue_size",), _MODEL),
    SeriesRow(Q.REQUESTS_RUNNING, ("tgi_batch_current_size",), _MODEL),
    SeriesRow(Q.REQUESTS_FINISHED, ("tgi_request_success", "tgi_request_success_total"), _MODEL, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, ("tgi_request_failure", "tgi_request_failure_total"), _MODEL, unit=COUNTER),  # per err
    SeriesRow(Q.TOKENS_PROMPT, ("tgi_request_input_length_sum",), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_GENERATED, ("tgi_request_generated_tokens_sum",), _MODEL, unit=COUNTER),
    *_times("tgi_request_queue_duration", "tgi_request_inference_duration", _MODEL),
)

TGI = Kind(
    "tgi", {"tgi_": 2},
    port=80,  # the image's PORT
    work=16.0, rows=_TGI_ROWS,
)  # fmt: skip

# TEI: text-embeddings-inference core/src/queue.rs, core/src/infer.rs. Running requests are unknown: te_batch_next_size
# is a histogram. Finished requests are counted per method (single, batch).
_TEI_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("te_queue_size",), _MODEL),
    SeriesRow(Q.REQUESTS_FINISHED, ("te_request_success", "te_request_success_total"), _MODEL, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, ("te_request_failure", "te_request_failure_total"), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_PROMPT, ("te_request_input_length_sum",), _MODEL, unit=COUNTER),
    *_times("te_request_queue_duration", "te_request_inference_duration", _MODEL),
)
TEI = Kind(
    "tei", {"te_queue_size": 2, "te_request_": 2, "te_embed_": 2, "te_batch_": 2},
    port=80,  # the image's PORT
    work=32.0, rows=_TEI_ROWS,
)  # fmt: skip

# trtllm-serve: tensorrt_llm/metrics/collector.py, perf_utils.py, serve/openai_server.py; from 1.3 on. Latencies, tokens
# and finished requests need `return_perf_metrics` and are counted when a request ends (`log_request_metrics_dict`):
# what it has read and made before is not known. The time per output token is the mean of a request. Gauges need
# `enable_iter_perf_stats` too; after a rest they are not refreshed until a request ends
# (`_iteration_stats_collector_loop`). Early versions have only latency histograms without a prefix. /metrics is JSON,
# which each request to it consumes.
_TRTLLM_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("trtllm_num_requests_waiting",), _MODEL),
    SeriesRow(Q.REQUESTS_RUNNING, ("trtllm_num_requests_running",), _MODEL),
    SeriesRow(Q.REQUESTS_FINISHED, ("trtllm_request_success_total",), _MODEL, unit=COUNTER),  # per finished_reason
    SeriesRow(Q.TOKENS_PROMPT, ("trtllm_prompt_tokens_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_GENERATED, ("trtllm_generation_tokens_total",), _MODEL, unit=COUNTER),
    *_times("trtllm_request_queue_time_seconds", "trtllm_request_inference_time_seconds", _MODEL),
    SeriesRow(Q.KV_CACHE_USED, ("trtllm_kv_cache_utilization",), _MODEL, Combine.MEAN, RATIO),
)
_TRTLLM_HISTOGRAMS = (
    SeriesRow(Latency.TTFT, ("trtllm_time_to_first_token_seconds_bucket",), _MODEL),
    SeriesRow(Latency.TPOT, ("trtllm_time_per_output_token_seconds_bucket",), _MODEL),
)
TRTLLM = Kind(
    "trtllm", {"trtllm_": 2}, port=8000, path="/prometheus/metrics", work=16.0, rows=_TRTLLM_ROWS,
    histograms=_TRTLLM_HISTOGRAMS, unsized="trtllm-serve counts the tokens of a request only when it ends",
)  # fmt: skip

# NIM for LLMs: docs.nvidia.com/nim observability; /v1/metrics (24.05: /metrics). Names without a prefix: only
# `num_request_max`, which no other kind exposes, identifies it. Later versions expose vLLM's own. Its time per output
# token is that between two tokens: a recorded response has 5 first tokens, 174 tokens and 169 such times
# (DataDog/integrations-core nvidia_nim/tests/fixtures/nim_metrics.txt).
_NIM_KV = ("gpu_cache_usage_perc", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")  # 0..1 despite "perc"


def _in_nim(row: SeriesRow) -> SeriesRow:
    """The row of vLLM with NIM's names, which have no prefix, before vLLM's."""
    return replace(row, names=tuple(dict.fromkeys((*(name.removeprefix("vllm:") for name in row.names), *row.names))))


_TIMES = {Q.QUEUED_COUNT, Q.QUEUED_SECONDS, Q.SERVED_COUNT, Q.SERVED_SECONDS}
_AS_IN_VLLM = (SIZED_BY | _TIMES) - {Q.REQUESTS_FINISHED}
_NIM_ROWS = (
    *(_in_nim(row) for row in _VLLM_ROWS if row.column in _AS_IN_VLLM),
    SeriesRow(Q.REQUESTS_FINISHED, ("request_success_total", "vllm:request_success_total"), _MODEL, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, ("request_failure_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.KV_CACHE_USED, _NIM_KV, _MODEL, Combine.MEAN, RATIO),
    SeriesRow("limit", ("num_request_max",), _MODEL),  # identifies the kind
)
NIM = Kind(
    "nim", {"num_request_max": 1}, port=8000, path="/v1/metrics", work=16.0, rows=_NIM_ROWS,
    histograms=tuple(_in_nim(row) for row in _VLLM_HISTOGRAMS),
)  # fmt: skip

# LMDeploy: lmdeploy/metrics/loggers.py, stats.py, metrics_processor.py (0.18). A request waits for a free handle in
# front of the engine (api_requests_waiting), then for the scheduler. `num_api_requests_routed` has passed the first
# wait and is either in the second or running: not one more. One series per `engine`. The gauges are refreshed every
# 10 s (serve/openai/api_server.py), the counters at once. `num_requests_failed` is a gauge that counts
# cancelled, aborted and failed requests since the start; `request_success_total` counts only those that were completed.
# `iter_token_latency` is the time between two outputs of a request, as vLLM's inter-token latency; for
# `time_per_output_token_seconds` it is divided by the tokens of the output.
_LMDEPLOY_STEPS = ("lmdeploy:iter_token_latency", "lmdeploy:time_per_output_token_seconds")
_LMDEPLOY_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("lmdeploy:num_requests_waiting",), _MODEL),
    SeriesRow(Q.REQUESTS_WAITING, ("lmdeploy:num_api_requests_waiting",), _MODEL),
    SeriesRow(Q.REQUESTS_RUNNING, ("lmdeploy:num_requests_running",), _MODEL),
    SeriesRow(Q.REQUESTS_FINISHED, ("lmdeploy:request_success_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, ("lmdeploy:num_requests_failed",), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_PROMPT, ("lmdeploy:prompt_tokens_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_GENERATED, ("lmdeploy:generation_tokens_total",), _MODEL, unit=COUNTER),
    SeriesRow(Q.FIRST_TOKENS, ("lmdeploy:time_to_first_token_seconds_count",), _MODEL, unit=COUNTER),
    SeriesRow(Q.ITL_COUNT, tuple(f"{name}_count" for name in _LMDEPLOY_STEPS), _MODEL, unit=COUNTER),
    SeriesRow(Q.ITL_SECONDS, tuple(f"{name}_sum" for name in _LMDEPLOY_STEPS), _MODEL, unit=COUNTER),
    *_times("lmdeploy:request_queue_time_seconds", "lmdeploy:request_inference_time_seconds", _MODEL),
    SeriesRow(Q.KV_CACHE_USED, ("lmdeploy:gpu_cache_usage_perc",), _MODEL, Combine.MEAN, RATIO),
)
_LMDEPLOY_HISTOGRAMS = (
    SeriesRow(Latency.TTFT, ("lmdeploy:time_to_first_token_seconds_bucket",), _MODEL),
    SeriesRow(Latency.TPOT, ("lmdeploy:time_per_output_token_seconds_bucket",), _MODEL),
)
LMDEPLOY = Kind(
    "lmdeploy", {"lmdeploy:": 2}, port=23333, work=16.0, rows=_LMDEPLOY_ROWS, histograms=_LMDEPLOY_HISTOGRAMS,
    lags=True,
)  # fmt: skip

# TorchServe: docs/metrics_api.md, with metrics_mode=prometheus. No queue length: ts_queue_latency_microseconds is
# a counter of time, and QueueTime is that of the last request, which stays when no request follows.
_TORCHSERVE_ROWS = (SeriesRow(Q.REQUESTS_FINISHED, ("ts_inference_requests_total",), _MODEL, unit=COUNTER),)
TORCHSERVE = Kind("torchserve", {"ts_inference_": 2, "ts_queue_latency_": 2}, port=8082, rows=_TORCHSERVE_ROWS)

# KServe's own Python server: kserve/metrics.py, histograms of each step. In raw mode scrape the
# engine itself (vLLM, Triton); this server only counts finished requests.
_KSERVE_ROWS = (SeriesRow(Q.REQUESTS_FINISHED, ("request_predict_seconds_count",), _MODEL, unit=COUNTER),)
KSERVE = Kind("kserve", {"request_predict_seconds": 1}, port=8080, rows=_KSERVE_ROWS)
