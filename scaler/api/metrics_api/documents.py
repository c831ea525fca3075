"""Encodes responses as Kubernetes does: metric values, and errors as a Status. Pure.

The two versions of the custom metrics API differ only in where the metric's name and the window stand. The window is 0:
Kubernetes wants it for rates over a time, and all values here are states at a moment.

Worked example: `status(404, "gone")["reason"]` is "NotFound", and `timestamp(0.9)` is "1970-01-01T00:00:00Z".
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, TypeAlias

from . import values
from .errors import quantity

Document: TypeAlias = dict[str, Any]

EXTERNAL_GROUP = "external.metrics.k8s.io"
CUSTOM_GROUP = "custom.metrics.k8s.io"

_REASONS = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowed",
    HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
}


def status(code: int, message: str) -> Document:
    """code: HTTP status."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS[HTTPStatus(code)],
        "code": int(code),
    }


def timestamp(at: float) -> str:
    """RFC 3339, rounded down to seconds. at: POSIX seconds."""
    return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def external_values(metric: str, values: Iterable[values.ExternalValue]) -> Document:
    items = [
        {
            "metricName": metric,
            "metricLabels": value.labels,
            "timestamp": timestamp(value.number.at),
            "window": 0,
            "value": quantity(value.number.value),
        }
        for value in values
    ]
    return _listed("ExternalMetricValueList", f"{EXTERNAL_GROUP}/v1beta1", items)


def custom_values(version: str, metric: str, values: Iterable[values.ObjectValue]) -> Document:
    """version: "v1beta1" or "v1beta2"."""
    named: Document = {"metric": {"name": metric}, "windowSeconds": 0}
    if version == "v1beta1":
        named = {"metricName": metric, "window": 0, "selector": None}
    items = [
        {
            "describedObject": {
                "kind": value.resource.kind,
                "namespace": value.namespace,
                "name": value.name,
                "apiVersion": value.resource.path.removeprefix("/apis/").removeprefix("/api/"),
            },
            **named,
            "timestamp": timestamp(value.number.at),
            "value": quantity(value.number.value),
        }
        for value in values
    ]
    return _listed("MetricValueList", f"{CUSTOM_GROUP}/{version}", items)


def _listed(kind: str, version: str, items: list[Document]) -> Document:
    return {"kind": kind, "apiVersion": version, "metadata": {}, "items": items}
