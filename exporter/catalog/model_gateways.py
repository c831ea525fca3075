"""Maps the metrics of gateways for language models: production-stack, Dynamo, SMG, Envoy AI Gateway.

Each is in front of engines and counts every request from its arrival to the end of its response. Its requests in flight
are the engines' own waiting and running requests, so all of them repeat their engines. None keeps a request without a
replica: it responds with an error, which only a counter shows.

Worked example: `dynamo_frontend_inflight_requests{model="m"} 10` and `dynamo_frontend_queued_requests{model="m"} 7` are
7 requests waiting for their first token and 3 running, for `Queue("m")`: the queued ones are among those in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from exporter.model import Quantity, Queue, Subject

from .kind import Kind
from .schema import COUNTER, Columns, Key, SeriesRow, label, matching, where, whole_response

Q = Quantity
_MODEL = label("model")
_INPUT, _OUTPUT = (where(token_type=each) for each in ("input", "output"))
_GENAI_INPUT, _GENAI_OUTPUT = (where(gen_ai_token_type=each) for each in ("input", "output"))


def _errors_without_zero(
    requests: str, columns: Columns, subjects: tuple[Subject, ...]
) -> tuple[Columns, tuple[Subject, ...]]:
    """Sets REQUESTS_FAILED to 0 if requests were counted and no failed one: a counter has no series before its first
    increment. requests: the column of all requests, NaN if one of them is invalid.
    """
    if requests in columns:
        failed = columns.get(Q.REQUESTS_FAILED, np.full(len(subjects), np.nan))
        columns[Q.REQUESTS_FAILED] = np.where(np.isnan(failed) & (columns[requests] >= 0.0), 0.0, failed)
    return columns, subjects


# vLLM production stack's router: vllm-project/production-stack src/vllm_router/services/metrics_service, routers/
# metrics_router.py, stats/request_stats.py. `num_requests_running` is the router's own count of open
# requests to each server; it declares `num_requests_waiting` and never sets it. A request of a server that fails is
# never subtracted. `num_incoming_requests` counts each request before a server is selected, so also one that finds none
# (503, or 404 before the model's first server). Token counts are of responses that are not streamed.
_PRODUCTION_STACK_ROWS = (
    SeriesRow(Q.REQUESTS_RUNNING, ("vllm:num_requests_running",), whole_response),  # per server
    SeriesRow(Q.REQUESTS_FINISHED, ("vllm:num_incoming_requests_total",), whole_response, unit=COUNTER),  # per model
    # per server, model, error_type
    SeriesRow(Q.REQUESTS_FAILED, ("vllm:request_errors_total",), whole_response, unit=COUNTER),
    SeriesRow(Q.TOKENS_PROMPT, ("vllm:input_tokens_total",), whole_response, unit=COUNTER),
    SeriesRow(Q.TOKENS_GENERATED, ("vllm:output_tokens_total",), whole_response, unit=COUNTER),
)

PRODUCTION_STACK = Kind(
    "production_stack",
    # The router's own names among those of vLLM. Before its first server it exposes only its CPU.
    {"vllm:num_incoming_requests": 3, "vllm:healthy_pods": 3, "vllm:current_qps": 3, "vllm:num_prefill_requests": 3,
     "vllm:num_decoding_requests": 3, "router_cpu_usage_percent": 1},
    port=8000,  # the chart's containerPort; --port alone is 8001
    work=16.0, rows=_PRODUCTION_STACK_ROWS, repeats_engines=True, at_zero="counted",
)  # fmt: skip

# NVIDIA Dynamo's frontend: ai-dynamo/dynamo lib/llm/src/http/service/metrics.rs, lib/runtime/src/metrics/
# prometheus_names.rs. In flight is from the handler's begin to the end of the response, queued until the first token.
# A request of a model that no worker serves is counted as an error of the model `unknown_model`
# (lib/llm/src/discovery/model_manager.rs); earlier releases did not count it. With DYN_METRICS_PREFIX the names
# begin otherwise and the response is not recognized.
_UNKNOWN_MODEL = "unknown_model"
_DYNAMO_REQUESTS = ("dynamo_frontend_requests_total",)  # per endpoint, request_type, status and error_type
_DYNAMO_GENERATED = ("dynamo_frontend_output_tokens_total", "dynamo_frontend_output_sequence_tokens_sum")
_DYNAMO_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("dynamo_frontend_queued_requests",), _MODEL),
    SeriesRow(Q.REQUESTS_RUNNING, ("dynamo_frontend_inflight_requests",), _MODEL),
    SeriesRow("requests", _DYNAMO_REQUESTS, _MODEL, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FINISHED, _DYNAMO_REQUESTS, _MODEL, unit=COUNTER, keep=where(status="success")),
    SeriesRow(Q.REQUESTS_FAILED, _DYNAMO_REQUESTS, _MODEL, unit=COUNTER, keep=where(status="error")),
    SeriesRow(Q.TOKENS_PROMPT, ("dynamo_frontend_input_sequence_tokens_sum",), _MODEL, unit=COUNTER),
    SeriesRow(Q.TOKENS_GENERATED, _DYNAMO_GENERATED, _MODEL, unit=COUNTER),
)


def _models(keys: Sequence[Key]) -> list[Subject | None]:
    """A model by its name. Counts of unregistered models belong to the only model: it may have no workers."""
    named = sorted({model for (model,) in keys if model not in ("", _UNKNOWN_MODEL)})
    lone = named[0] if len(named) == 1 else _UNKNOWN_MODEL
    return [Queue(model if model in named else lone) for (model,) in keys]


def _queued_apart(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
    """Running is what is in flight and not queued. The sum stays what is in flight, whichever gauge is ahead."""
    if Q.REQUESTS_RUNNING in columns and Q.REQUESTS_WAITING in columns:
        in_flight, queued = columns[Q.REQUESTS_RUNNING], columns[Q.REQUESTS_WAITING]
        columns[Q.REQUESTS_RUNNING] = np.where(np.isnan(queued), in_flight, np.maximum(in_flight - queued, 0.0))
    return _errors_without_zero("requests", columns, subjects)


DYNAMO = Kind(
    "dynamo", {"dynamo_frontend_": 3}, port=8000, work=16.0, rows=_DYNAMO_ROWS, subjects=_models, finish=_queued_apart,
    repeats_engines=True, at_zero="refused",
)  # fmt: skip


# Responses with an error code of the gateway's own that mean: no worker, or no capacity. A failing readiness probe is
# 503 as well, and has no error code.
_REFUSED = matching(
    lambda labels: bool(labels.get("error_code")) and labels.get("status_code", "").startswith(("404", "429", "5"))
)
# SMG, the SGLang model gateway: sgl-project/sglang sgl-model-gateway/src/observability/metrics.rs, and later
# lightseekorg/smg model_gateway/src/observability/metrics.rs (`admission_*`). `worker_requests_active` counts
# each worker's requests through this gateway until the end of the response; with prefill and decode apart, both count
# it. `http_connections_active` ends where a streamed response begins. `engine_*` repeats what engines report.
_SMG_RESPONSES = ("smg_http_responses_total",)  # per status_code and error_code, later also path
_SMG_TOKENS = ("smg_router_tokens_total",)  # workers over gRPC only
_SMG_ROWS = (
    SeriesRow(Q.REQUESTS_HELD, ("smg_admission_queue_depth",), whole_response),
    SeriesRow(Q.REQUESTS_RUNNING, ("smg_worker_requests_active",), whole_response),  # per worker
    # A histogram of successful requests; `smg_router_requests_total` counts them when they are routed.
    SeriesRow(Q.REQUESTS_FINISHED, ("smg_router_request_duration_seconds_count",), whole_response, unit=COUNTER),
    SeriesRow("responses", _SMG_RESPONSES, whole_response, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, _SMG_RESPONSES, whole_response, unit=COUNTER, keep=_REFUSED),
    SeriesRow(Q.TOKENS_PROMPT, _SMG_TOKENS, whole_response, unit=COUNTER, keep=_INPUT),
    SeriesRow(Q.TOKENS_GENERATED, _SMG_TOKENS, whole_response, unit=COUNTER, keep=_OUTPUT),
)
SMG = Kind(
    "smg", {"smg_": 3}, port=29000, work=16.0, rows=_SMG_ROWS, finish=partial(_errors_without_zero, "responses"),
    repeats_engines=True, at_zero="refused",
)  # fmt: skip

# Envoy AI Gateway's external processor: envoyproxy/ai-gateway internal/metrics/genai.go, metrics_impl.go. Histograms
# only: the Envoy beside it has what waits or runs. Completions are recorded by the filter in front of an upstream
# (internal/extproc/processor_impl.go), so a request that finds no upstream host is not counted. `error_type` is there
# on failed requests alone; `cached_input` tokens are among the `input` ones.
_GENAI_MODEL = label("gen_ai_request_model", "gen_ai_original_model")
_GENAI_REQUESTS = ("gen_ai_server_request_duration_seconds_count",)
_GENAI_TOKENS = ("gen_ai_client_token_usage_sum",)
_FAILED = matching(lambda labels: bool(labels.get("error_type")))
_GENAI_ROWS = (
    SeriesRow("requests", _GENAI_REQUESTS, _GENAI_MODEL, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FINISHED, _GENAI_REQUESTS, _GENAI_MODEL, unit=COUNTER, keep=where(error_type="")),
    SeriesRow(Q.REQUESTS_FAILED, _GENAI_REQUESTS, _GENAI_MODEL, unit=COUNTER, keep=_FAILED),
    SeriesRow(Q.TOKENS_PROMPT, _GENAI_TOKENS, _GENAI_MODEL, unit=COUNTER, keep=_GENAI_INPUT),
    SeriesRow(Q.TOKENS_GENERATED, _GENAI_TOKENS, _GENAI_MODEL, unit=COUNTER, keep=_GENAI_OUTPUT),
)
ENVOY_AI_GATEWAY = Kind(
    "envoy_ai_gateway",
    # As weak as Envoy's own: where both are in one response, Envoy's has the requests in flight. Other programs have
    # `gen_ai_client_*`, of their own requests.
    {"gen_ai_server_request_duration_seconds": 0}, port=1064, rows=_GENAI_ROWS,
    finish=partial(_errors_without_zero, "requests"), repeats_engines=True,
)  # fmt: skip
