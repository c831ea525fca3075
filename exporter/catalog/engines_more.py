"""More inference engines' words: TGI, TEI, trtllm-serve, NIM, LMDeploy, and two that have no queue: TorchServe, KServe.

What an engine does not say is left out rather than made up from something near it: a counter of microseconds spent in a
queue is no queue, and a histogram's count of batches is no number of requests running.

Worked example: `lmdeploy:num_requests_waiting{model_name="m"} 2` (in the engine) and
`lmdeploy:num_api_requests_waiting{model_name="m"} 3` (before it) make 5 requests waiting for `Queue("m")`.
"""

from __future__ import annotations

from functools import partial

from exporter.model import Quantity

from .kind import Kind, compile_table
from .naming import as_it_is, one_queue_each
from .words import COUNTER, RATIO, Combine, Row, Table, label

Q = Quantity
_MODEL = label("model_name", "model")

# TGI: docs/source/reference/metrics.md, backends/v3/src/queue.rs. No labels; the queue's gauge is printed from the
# first request on, so a fresh pod says nothing. Above --max-concurrent-requests requests are refused
# (`tgi_request_failure{err="overloaded"}`) and the queue does not grow. Tokens are sums of histograms.
_TGI_ROWS = (
    Row(Q.REQUESTS_WAITING, ("tgi_queue_size",), _MODEL),
    Row(Q.REQUESTS_RUNNING, ("tgi_batch_current_size",), _MODEL),
    Row(Q.REQUESTS_FINISHED, ("tgi_request_success", "tgi_request_success_total"), _MODEL, unit=COUNTER),
    Row(Q.REQUESTS_FAILED, ("tgi_request_failure", "tgi_request_failure_total"), _MODEL, unit=COUNTER),  # per err
    Row(Q.TOKENS_PROMPT, ("tgi_request_input_length_sum",), _MODEL, unit=COUNTER),
    Row(Q.TOKENS_GENERATED, ("tgi_request_generated_tokens_sum",), _MODEL, unit=COUNTER),
)

# TEI: text-embeddings-inference core/src/queue.rs, core/src/infer.rs. Nothing tells how many run: te_batch_next_size is
# a histogram. Finished requests are counted per method (single, batch).
_TEI_ROWS = (
    Row(Q.REQUESTS_WAITING, ("te_queue_size",), _MODEL),
    Row(Q.REQUESTS_FINISHED, ("te_request_success", "te_request_success_total"), _MODEL, unit=COUNTER),
    Row(Q.REQUESTS_FAILED, ("te_request_failure", "te_request_failure_total"), _MODEL, unit=COUNTER),
    Row(Q.TOKENS_PROMPT, ("te_request_input_length_sum",), _MODEL, unit=COUNTER),
)

# trtllm-serve: tensorrt_llm/metrics/collector.py; gauges from 1.3 on, with `return_perf_metrics`. Early versions print
# latency histograms without a prefix and nothing that is read here. /metrics is JSON, taken away by whoever polls it.
_TRTLLM_ROWS = (
    Row(Q.REQUESTS_WAITING, ("trtllm_num_requests_waiting",), _MODEL),
    Row(Q.REQUESTS_RUNNING, ("trtllm_num_requests_running",), _MODEL),
    Row(Q.REQUESTS_FINISHED, ("trtllm_request_success_total",), _MODEL, unit=COUNTER),  # per finished_reason
    Row(Q.TOKENS_PROMPT, ("trtllm_prompt_tokens_total",), _MODEL, unit=COUNTER),
    Row(Q.TOKENS_GENERATED, ("trtllm_generation_tokens_total",), _MODEL, unit=COUNTER),
    Row(Q.KV_CACHE_USED, ("trtllm_kv_cache_utilization",), _MODEL, Combine.MEAN, RATIO),
)

# NIM for LLMs: docs.nvidia.com/nim observability; /v1/metrics (24.05: /metrics). Names without a prefix, as anybody
# might have them: only `num_request_max`, which nobody else prints, gives a page away. Later versions print vLLM's own.
_NIM_KV = ("gpu_cache_usage_perc", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")  # 0..1 despite "perc"
_NIM_ROWS = (
    Row(Q.REQUESTS_WAITING, ("num_requests_waiting", "vllm:num_requests_waiting"), _MODEL),
    Row(Q.REQUESTS_RUNNING, ("num_requests_running", "vllm:num_requests_running"), _MODEL),
    Row(Q.REQUESTS_FINISHED, ("request_success_total", "vllm:request_success_total"), _MODEL, unit=COUNTER),
    Row(Q.REQUESTS_FAILED, ("request_failure_total",), _MODEL, unit=COUNTER),
    Row(Q.TOKENS_PROMPT, ("prompt_tokens_total", "vllm:prompt_tokens_total"), _MODEL, unit=COUNTER),
    Row(Q.TOKENS_GENERATED, ("generation_tokens_total", "vllm:generation_tokens_total"), _MODEL, unit=COUNTER),
    Row(Q.KV_CACHE_USED, _NIM_KV, _MODEL, Combine.MEAN, RATIO),
    Row("limit", ("num_request_max",), _MODEL),  # read to know the page by
)

# LMDeploy: lmdeploy/metrics/loggers.py, metrics_processor.py. A request waits for a free handle in front of the engine
# (api_requests_waiting), then for the scheduler. `num_api_requests_routed` has passed the first wait and is either in
# the second or running: not one more. One series per `engine`.
_LMDEPLOY_ROWS = (
    Row(Q.REQUESTS_WAITING, ("lmdeploy:num_requests_waiting",), _MODEL),
    Row(Q.REQUESTS_WAITING, ("lmdeploy:num_api_requests_waiting",), _MODEL),
    Row(Q.REQUESTS_RUNNING, ("lmdeploy:num_requests_running",), _MODEL),
    Row(Q.REQUESTS_FINISHED, ("lmdeploy:request_success_total",), _MODEL, unit=COUNTER),
    Row(Q.TOKENS_PROMPT, ("lmdeploy:prompt_tokens_total",), _MODEL, unit=COUNTER),
    Row(Q.TOKENS_GENERATED, ("lmdeploy:generation_tokens_total",), _MODEL, unit=COUNTER),
    Row(Q.KV_CACHE_USED, ("lmdeploy:gpu_cache_usage_perc",), _MODEL, Combine.MEAN, RATIO),
)

# TorchServe: docs/metrics_api.md, with metrics_mode=prometheus. No depth of any queue: ts_queue_latency_microseconds is
# a counter of time, and QueueTime the host's last request, which stays when nobody asks any more.
_TORCHSERVE_ROWS = (Row(Q.REQUESTS_FINISHED, ("ts_inference_requests_total",), _MODEL, unit=COUNTER),)

# KServe's own Python server: kserve/metrics.py, histograms of each step. In raw mode the page of vLLM, Triton or
# whatever serves is the one to ask; this one only tells that somebody was here.
_KSERVE_ROWS = (Row(Q.REQUESTS_FINISHED, ("request_predict_seconds_count",), _MODEL, unit=COUNTER),)

TGI = Kind(
    name="tgi",
    signs={"tgi_": 2},
    port=80,  # the image's PORT
    path="/metrics",
    work=16.0,
    compile=partial(compile_table, "tgi", Table(_TGI_ROWS, one_queue_each, as_it_is)),
)
TEI = Kind(
    name="tei",
    signs={"te_queue_size": 2, "te_request_": 2, "te_embed_": 2, "te_batch_": 2},
    port=80,  # the image's PORT
    path="/metrics",
    work=32.0,
    compile=partial(compile_table, "tei", Table(_TEI_ROWS, one_queue_each, as_it_is)),
)
TRTLLM = Kind(
    name="trtllm",
    signs={"trtllm_": 2},
    port=8000,
    path="/prometheus/metrics",
    work=16.0,
    compile=partial(compile_table, "trtllm", Table(_TRTLLM_ROWS, one_queue_each, as_it_is)),
)
NIM = Kind(
    name="nim",
    signs={"num_request_max": 1},
    port=8000,
    path="/v1/metrics",
    work=16.0,
    compile=partial(compile_table, "nim", Table(_NIM_ROWS, one_queue_each, as_it_is)),
)
LMDEPLOY = Kind(
    name="lmdeploy",
    signs={"lmdeploy:": 2},
    port=23333,
    path="/metrics",
    work=16.0,
    compile=partial(compile_table, "lmdeploy", Table(_LMDEPLOY_ROWS, one_queue_each, as_it_is)),
)
TORCHSERVE = Kind(
    name="torchserve",
    signs={"ts_inference_": 2, "ts_queue_latency_": 2},
    port=8082,
    path="/metrics",
    work=None,
    compile=partial(compile_table, "torchserve", Table(_TORCHSERVE_ROWS, one_queue_each, as_it_is)),
)
KSERVE = Kind(
    name="kserve",
    signs={"request_predict_seconds": 1},
    port=8080,
    path="/metrics",
    work=None,
    compile=partial(compile_table, "kserve", Table(_KSERVE_ROWS, one_queue_each, as_it_is)),
)
