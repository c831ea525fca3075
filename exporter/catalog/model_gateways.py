"""Metrics of gateways made for language models: production-stack's router, Dynamo's frontend, SMG, Envoy AI Gateway.

Each stands in front of engines and sees every request from its arrival to the end of its answer. What it counts as in
flight are the engines' own waiting and running requests, so all of them repeat their engines. None keeps a request for
which there is no replica: it answers with an error, and a counter is all that shows it.

Worked example: `dynamo_frontend_inflight_requests{model="m"} 10` and `dynamo_frontend_queued_requests{model="m"} 7` are
7 requests waiting for their first token and 3 running, for `Queue("m")`: the queued ones are among those in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from exporter.model import Quantity, Queue, Subject

from .kind import Kind, compile_table
from .schema import COUNTER, Columns, Key, KindTable, Labels, SeriesRow, as_it_is, label, one_queue_each, where

Q = Quantity
_MODEL = label("model")


def _whole_gateway(_: Labels) -> Key:
    """One key for the whole response: its gauges name servers and no model, so nothing is kept apart by one."""
    return ("",)


def _errors_without_zero(
    requests: str, columns: Columns, subjects: tuple[Subject, ...]
) -> tuple[Columns, tuple[Subject, ...]]:
    """REQUESTS_FAILED is 0 where requests were counted and no failed one was: the series of a counter is first printed
    when it is first incremented. `requests`: the column of all requests, NaN if one of them cannot be read.
    """
    if requests in columns:
        failed = columns.get(Q.REQUESTS_FAILED, np.full(len(subjects), np.nan))
        columns[Q.REQUESTS_FAILED] = np.where(np.isnan(failed) & (columns[requests] >= 0.0), 0.0, failed)
    return columns, subjects


def _tokens(name: str, which: str) -> Callable[[Sequence[Labels]], list[int]]:
    return where(**{name: which})


# vLLM production stack's router: vllm-project/production-stack src/vllm_router/services/metrics_service, routers/
# metrics_router.py, stats/request_stats.py. `num_requests_running` is the router's own count of what it has sent to
# each server and is not answered; it declares `num_requests_waiting` and never sets it. A request whose server fails
# is never taken off that count. `num_incoming_requests` counts each request before a server is looked for, so also one
# that finds none (503, or 404 before the model's first server). Token counts are of answers that are not streamed.
_PRODUCTION_STACK_ROWS = (
    SeriesRow(Q.REQUESTS_RUNNING, ("vllm:num_requests_running",), _whole_gateway),  # per server
    SeriesRow(Q.REQUESTS_FINISHED, ("vllm:num_incoming_requests_total",), _whole_gateway, unit=COUNTER),  # per model
    SeriesRow(
        Q.REQUESTS_FAILED, ("vllm:request_errors_total",), _whole_gateway, unit=COUNTER
    ),  # per server, model, error_type
    SeriesRow(Q.TOKENS_PROMPT, ("vllm:input_tokens_total",), _whole_gateway, unit=COUNTER),
    SeriesRow(Q.TOKENS_GENERATED, ("vllm:output_tokens_total",), _whole_gateway, unit=COUNTER),
)

# NVIDIA Dynamo's frontend: ai-dynamo/dynamo lib/llm/src/http/service/metrics.rs, lib/runtime/src/metrics/
# prometheus_names.rs. In flight is from the handler's begin to the end of the answer, queued until the first token.
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
    """A model by its name. What is counted of no registered model is the only model's: while none of its workers is
    there, it is not registered.
    """
    named = sorted({model for (model,) in keys if model not in ("", _UNKNOWN_MODEL)})
    lone = named[0] if len(named) == 1 else _UNKNOWN_MODEL
    return [Queue(model if model in named else lone) for (model,) in keys]


def _queued_apart(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
    """Running is what is in flight and not queued. The sum stays what is in flight, whichever gauge is ahead."""
    if Q.REQUESTS_RUNNING in columns and Q.REQUESTS_WAITING in columns:
        in_flight, queued = columns[Q.REQUESTS_RUNNING], columns[Q.REQUESTS_WAITING]
        columns[Q.REQUESTS_RUNNING] = np.where(np.isnan(queued), in_flight, np.maximum(in_flight - queued, 0.0))
    return _errors_without_zero("requests", columns, subjects)


def _refused_by_gateway(members: Sequence[Labels]) -> list[int]:
    """Responses with an error code of the gateway's own that mean: no worker, or no room. A failing readiness probe is
    503 as well, and has no error code.
    """
    return [
        place
        for place, labels in enumerate(members)
        if labels.get("error_code") and labels.get("status_code", "").startswith(("404", "429", "5"))
    ]


# SMG, the SGLang model gateway: sgl-project/sglang sgl-model-gateway/src/observability/metrics.rs, and later
# lightseekorg/smg model_gateway/src/observability/metrics.rs (`admission_*`). `worker_requests_active` is what each
# worker has in hand through this gateway until the answer's end; with prefill and decode apart, both have it.
# `http_connections_active` is left out: it ends where a streamed answer begins. `engine_*` repeats what engines report.
_SMG_RESPONSES = ("smg_http_responses_total",)  # per status_code and error_code, later also path
_SMG_TOKENS = ("smg_router_tokens_total",)  # workers over gRPC only
_SMG_ROWS = (
    SeriesRow(Q.REQUESTS_HELD, ("smg_admission_queue_depth",), _whole_gateway),
    SeriesRow(Q.REQUESTS_RUNNING, ("smg_worker_requests_active",), _whole_gateway),  # per worker
    # A histogram of successful requests; `smg_router_requests_total` counts them when they are routed.
    SeriesRow(Q.REQUESTS_FINISHED, ("smg_router_request_duration_seconds_count",), _whole_gateway, unit=COUNTER),
    SeriesRow("responses", _SMG_RESPONSES, _whole_gateway, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, _SMG_RESPONSES, _whole_gateway, unit=COUNTER, keep=_refused_by_gateway),
    SeriesRow(Q.TOKENS_PROMPT, _SMG_TOKENS, _whole_gateway, unit=COUNTER, keep=_tokens("token_type", "input")),
    SeriesRow(Q.TOKENS_GENERATED, _SMG_TOKENS, _whole_gateway, unit=COUNTER, keep=_tokens("token_type", "output")),
)

# Envoy AI Gateway's external processor: envoyproxy/ai-gateway internal/metrics/genai.go, metrics_impl.go. Histograms
# alone: what waits or runs, the Envoy beside it says. Completions are recorded by the filter in front of an upstream
# (internal/extproc/processor_impl.go), so a request that finds no upstream host is not counted. `error_type` is there
# on failed requests alone; `cached_input` tokens are among the `input` ones.
_GENAI_MODEL = label("gen_ai_request_model", "gen_ai_original_model")
_GENAI_REQUESTS = ("gen_ai_server_request_duration_seconds_count",)
_GENAI_TOKENS = ("gen_ai_client_token_usage_sum",)


def _failed(members: Sequence[Labels]) -> list[int]:
    return [place for place, labels in enumerate(members) if labels.get("error_type")]


_GENAI_ROWS = (
    SeriesRow("requests", _GENAI_REQUESTS, _GENAI_MODEL, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FINISHED, _GENAI_REQUESTS, _GENAI_MODEL, unit=COUNTER, keep=where(error_type="")),
    SeriesRow(Q.REQUESTS_FAILED, _GENAI_REQUESTS, _GENAI_MODEL, unit=COUNTER, keep=_failed),
    SeriesRow(Q.TOKENS_PROMPT, _GENAI_TOKENS, _GENAI_MODEL, unit=COUNTER, keep=_tokens("gen_ai_token_type", "input")),
    SeriesRow(
        Q.TOKENS_GENERATED, _GENAI_TOKENS, _GENAI_MODEL, unit=COUNTER, keep=_tokens("gen_ai_token_type", "output")
    ),
)

PRODUCTION_STACK = Kind(
    name="production_stack",
    # Names of the router's own among those that it has from vLLM. Before its first server it prints its CPU alone.
    signs={
        "vllm:num_incoming_requests": 3,
        "vllm:healthy_pods": 3,
        "vllm:current_qps": 3,
        "vllm:num_prefill_requests": 3,
        "vllm:num_decoding_requests": 3,
        "router_cpu_usage_percent": 1,
    },
    port=8000,  # the chart's containerPort; --port alone is 8001
    path="/metrics",
    work=16.0,
    compile=partial(compile_table, "production_stack", KindTable(_PRODUCTION_STACK_ROWS, one_queue_each, as_it_is)),
    repeats_engines=True,
    at_zero="counted",
)
DYNAMO = Kind(
    name="dynamo",
    signs={"dynamo_frontend_": 3},
    port=8000,
    path="/metrics",
    work=16.0,
    compile=partial(compile_table, "dynamo", KindTable(_DYNAMO_ROWS, _models, _queued_apart)),
    repeats_engines=True,
    at_zero="refused",
)
SMG = Kind(
    name="smg",
    signs={"smg_": 3},
    port=29000,
    path="/metrics",
    work=16.0,
    compile=partial(
        compile_table, "smg", KindTable(_SMG_ROWS, one_queue_each, partial(_errors_without_zero, "responses"))
    ),
    repeats_engines=True,
    at_zero="refused",
)
ENVOY_AI_GATEWAY = Kind(
    name="envoy_ai_gateway",
    # As weak as Envoy's own: where both are in one response, Envoy's has the requests in flight. Other programs have
    # `gen_ai_client_*`, of what they ask themselves.
    signs={"gen_ai_server_request_duration_seconds": 0},
    port=1064,
    path="/metrics",
    work=None,
    compile=partial(
        compile_table,
        "envoy_ai_gateway",
        KindTable(_GENAI_ROWS, one_queue_each, partial(_errors_without_zero, "requests")),
    ),
    repeats_engines=True,
)
