"""Parses a request for a metric: first the path, for RBAC; the query only after RBAC allows it. Pure.

Worked example: `parse_request("/apis/external.metrics.k8s.io/v1beta1/namespaces/ai/tidegate-replicas",
{"labelSelector": "workload=chat"}, groups)` has the `access` `list tidegate-replicas` in namespace `ai`; its `read()`
is `ExternalRequest("ai", (Requirement("workload", IN, {"chat"}),))`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote

from exporter.kubernetes.auth import AccessRequest
from exporter.kubernetes.resources import PODS
from scaler.config.errors import shown

from . import pods, values
from .discovery import SUBRESOURCES, VERSIONS
from .documents import CUSTOM_GROUP, EXTERNAL_GROUP
from .errors import ApiError
from .selectors import BadSelector, Selector, parse
from .values import ALL, REPLICAS


class ExternalRequest(NamedTuple):
    """External metrics of a namespace."""

    namespace: str
    selector: Selector


class CustomRequest(NamedTuple):
    """A metric of objects or pods."""

    version: str
    objects: values.ObjectRequest | pods.PodRequest
    metric: str
    selector: Selector


class MetricRequest(NamedTuple):
    """access: what RBAC must allow. read: parses the query, for a caller with this access. Raises ApiError."""

    access: AccessRequest
    read: Callable[[], ExternalRequest | CustomRequest]


def parse_request(raw_path: str, query: Mapping[str, str], groups: Collection[str]) -> MetricRequest:
    """raw_path: percent-encoded, so no name contains a "/". groups: those that are on. Raises ApiError."""
    match [unquote(part) for part in raw_path.split("/")]:
        case ["", "apis", group, version, "namespaces", namespace, *rest] if (
            group in groups and version in VERSIONS[group]
        ):
            read = _external if group == EXTERNAL_GROUP else _custom
            if (found := read(version, namespace, rest, query)) is not None:
                return found
    raise ApiError(HTTPStatus.NOT_FOUND, f"{shown(raw_path)}: no such metric; /apis lists all")


def _external(version: str, namespace: str, rest: Sequence[str], query: Mapping[str, str]) -> MetricRequest | None:
    match rest:
        case [metric] if metric == REPLICAS:
            # To RBAC, a resource without a name is a list.
            access = AccessRequest("list", EXTERNAL_GROUP, metric, namespace, version)
            return MetricRequest(access, lambda: ExternalRequest(namespace, _selector(query, "labelSelector")))
    return None


def _custom(version: str, namespace: str, rest: Sequence[str], query: Mapping[str, str]) -> MetricRequest | None:
    match rest:
        case [resource, name, metric] if metric in SUBRESOURCES.get(resource, ()):
            access = AccessRequest("get", CUSTOM_GROUP, resource, namespace, version, metric, name)
            return MetricRequest(access, lambda: _custom_read(version, namespace, resource, name, metric, query))
    return None


def _custom_read(
    version: str, namespace: str, resource: str, name: str, metric: str, query: Mapping[str, str]
) -> CustomRequest:
    objects: values.ObjectRequest | pods.PodRequest
    if resource == str(PODS):
        _refuse(query, "fieldSelector")
        objects = pods.PodRequest(namespace, name, _selector(query, "labelSelector"))
    else:
        _refuse(query, "labelSelector", "fieldSelector")
        objects = values.ObjectRequest(namespace, resource, name)
    return CustomRequest(version, objects, metric, _selector(query, "metricLabelSelector"))


def _selector(query: Mapping[str, str], key: str) -> Selector:
    try:
        return parse(query.get(key, ""))
    except BadSelector as bad:
        raise ApiError(HTTPStatus.BAD_REQUEST, str(bad).replace("labelSelector", key, 1)) from None


def _refuse(query: Mapping[str, str], *selectors: str) -> None:
    """Ignoring a selector would return objects that were not requested."""
    for key in selectors:
        if query.get(key):
            message = f"{key}: must be empty: select objects by name, or all of a namespace by {ALL}"
            raise ApiError(HTTPStatus.BAD_REQUEST, message)
