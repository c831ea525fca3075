"""Parses a request for a metric: first what RBAC has to allow, from the path; then, once it does, the query. Pure.

Worked example: `question("/apis/external.metrics.k8s.io/v1beta1/namespaces/ai/tidegate-replicas", {"labelSelector":
"workload=chat"}, groups)` has the `access` `list tidegate-replicas` in namespace `ai`; its `read()` is
`External("ai", (Requirement("workload", IN, {"chat"}),))`.
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


class External(NamedTuple):
    namespace: str
    selector: Selector


class Custom(NamedTuple):
    version: str
    asked: values.ObjectRequest | pods.AskedPods
    metric: str
    selector: Selector


class Question(NamedTuple):
    """access: what RBAC has to allow. read: reads the query; only for a caller that has this access. Raises Refusal."""

    access: AccessRequest
    read: Callable[[], External | Custom]


def question(raw_path: str, query: Mapping[str, str], groups: Collection[str]) -> Question:
    """raw_path: still percent-encoded, so that no name can bring a "/". groups: those that are on. Raises Refusal."""
    match [unquote(part) for part in raw_path.split("/")]:
        case ["", "apis", group, version, "namespaces", namespace, *rest] if (
            group in groups and version in VERSIONS[group]
        ):
            read = _external if group == EXTERNAL_GROUP else _custom
            if (found := read(version, namespace, rest, query)) is not None:
                return found
    raise ApiError(HTTPStatus.NOT_FOUND, f"{shown(raw_path)}: there is no such metric; see /apis for those that are")


def _external(version: str, namespace: str, rest: Sequence[str], query: Mapping[str, str]) -> Question | None:
    match rest:
        case [metric] if metric == REPLICAS:
            # What stands where a resource does, without a name, is a list to RBAC.
            access = AccessRequest("list", EXTERNAL_GROUP, metric, namespace, version)
            return Question(access, lambda: External(namespace, _selector(query, "labelSelector")))
    return None


def _custom(version: str, namespace: str, rest: Sequence[str], query: Mapping[str, str]) -> Question | None:
    match rest:
        case [resource, name, metric] if metric in SUBRESOURCES.get(resource, ()):
            access = AccessRequest("get", CUSTOM_GROUP, resource, namespace, version, metric, name)
            return Question(access, lambda: _custom_read(version, namespace, resource, name, metric, query))
    return None


def _custom_read(
    version: str, namespace: str, resource: str, name: str, metric: str, query: Mapping[str, str]
) -> Custom:
    asked: values.ObjectRequest | pods.AskedPods
    if resource == str(PODS):
        _refuse(query, "fieldSelector")
        asked = pods.AskedPods(namespace, name, _selector(query, "labelSelector"))
    else:
        _refuse(query, "labelSelector", "fieldSelector")
        asked = values.ObjectRequest(namespace, resource, name)
    return Custom(version, asked, metric, _selector(query, "metricLabelSelector"))


def _selector(query: Mapping[str, str], key: str) -> Selector:
    try:
        return parse(query.get(key, ""))
    except BadSelector as bad:
        raise ApiError(HTTPStatus.BAD_REQUEST, str(bad).replace("labelSelector", key, 1)) from None


def _refuse(query: Mapping[str, str], *selectors: str) -> None:
    """Ignoring them would answer for objects that nobody asked about."""
    for key in selectors:
        if query.get(key):
            words = f"{key}: must be empty: objects are chosen by name, or all of a namespace by {ALL}"
            raise ApiError(HTTPStatus.BAD_REQUEST, words)
