"""Health checks by name: series of request counters that a path or a route tells to be probes, and nobody's requests.

Where a page counts requests by path (KEDA's HTTP add-on, LiteLLM's and Ray Serve's routes, a BentoML or FastAPI server
behind our own export), a prober that asks every ten seconds would keep a workload awake for ever. Such series are left
out of the counters of finished and failed requests; what waits or runs is never left out by its name. Pages that count
without a path are looked at elsewhere, by how regularly they rise (`scaler.probes`).

Left as they are, because they do not count probes: Envoy (its active health checks are `health_check.attempt`), Knative
(requests of kubelet and of its own probes are not counted), Triton, KServe and vLLM (only inferences are).

Worked example: `interceptor_request_count_total{method="GET",path="/healthz"}` is a probe's,
`{path="/v1/models/health:predict"}` is not: the last part of the path has to be one of `LAST`.
"""

from __future__ import annotations

from exporter.model import Quantity

from .words import Labels

# Where a page says which path was asked. Instrumentations of FastAPI and Starlette say handler or path, OpenTelemetry
# http_route, http_target or url_path, LiteLLM and Ray Serve route, BentoML endpoint, nginx' exporters uri.
LABELS = ("path", "route", "handler", "endpoint", "http_route", "url_path", "http_target", "uri")

# The last part of a probe's path. Kubernetes' conventions (healthz, livez, readyz), Prometheus' own scrape (metrics),
# SageMaker's and TorchServe's ping, Triton's and KServe's v2/health/{live,ready}, LiteLLM's health/liveliness, Ray's
# -/healthz, vLLM's and SGLang's health. Not `status`, `info` or `version`: people ask for those.
LAST = frozenset(
    {
        *(
            "health",
            "healthz",
            "health_check",
            "healthcheck",
            "livez",
            "readyz",
            "live",
            "ready",
            "liveness",
            "readiness",
        ),
        *("liveliness", "ping", "metrics", "healthy"),
    }
)

COUNTERS = frozenset({Quantity.REQUESTS_FINISHED, Quantity.REQUESTS_FAILED})


def is_probe(labels: Labels) -> bool:
    """Does one of its labels say that these were health checks, or scrapes?"""
    return any(_last_part(labels[name]) in LAST for name in LABELS if name in labels)


def _last_part(path: str) -> str:
    return path.partition("?")[0].rstrip("/").rpartition("/")[2].lower() if "/" in path else ""
