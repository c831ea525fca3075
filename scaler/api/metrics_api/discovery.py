"""Answers discovery, in its old and its aggregated form, and the OpenAPI that goes with it. Pure.

All documents are constant for the API groups that are on, so a probe of the API server never waits. The OpenAPI
documents name no paths: the API server only requires that they exist.

Worked example: `DiscoveryHandler(("external.metrics.k8s.io",)).at("/apis/external.metrics.k8s.io/v1beta1", "")` is the
APIResourceList with `tidegate-replicas` in it, as ("application/json", {...}).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import NamedTuple

from exporter.kubernetes.resources import PODS

from .documents import CUSTOM_GROUP, EXTERNAL_GROUP, Document
from .pods import PER_POD
from .values import METRICS, REPLICAS, SCALED

JSON = "application/json"
_AGGREGATED = "g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"

# The preferred version first.
VERSIONS = {EXTERNAL_GROUP: ("v1beta1",), CUSTOM_GROUP: ("v1beta2", "v1beta1")}


# The metrics of each resource, by the name that clients use.
SUBRESOURCES = {**dict.fromkeys(SCALED, tuple(METRICS)), str(PODS): tuple(PER_POD)}


class DiscoveryDocument(NamedTuple):
    content_type: str
    document: Document


class DiscoveryHandler:
    """Returns the documents. groups: those that are on, of EXTERNAL_GROUP and CUSTOM_GROUP."""

    def __init__(self, groups: Iterable[str]) -> None:
        on = tuple(group for group in VERSIONS if group in set(groups))
        self._old = {path: DiscoveryDocument(JSON, document) for path, document in _documents(on)}
        self._aggregated = {version: _aggregated(on, version) for version in ("v2", "v2beta1")}

    def at(self, path: str, accept: str) -> DiscoveryDocument | None:
        """None if this is no path of discovery. accept: the header."""
        if path == "/apis":
            for each in accept.replace(" ", "").split(","):
                for version, answer in self._aggregated.items():
                    if each.startswith(f"{JSON};{_AGGREGATED.format(version)}"):
                        return answer
        return self._old.get(path)


def _documents(groups: tuple[str, ...]) -> Iterable[tuple[str, Document]]:
    """All paths except the aggregated form of /apis."""
    yield "/apis", {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(group) for group in groups]}
    yield "/openapi/v2", {"swagger": "2.0", "info": _info("Tidegate metrics"), "paths": {}, "definitions": {}}
    paths: Document = {}
    for group in groups:
        yield f"/apis/{group}", {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}
        for version in VERSIONS[group]:
            yield (
                f"/apis/{group}/{version}",
                {
                    "kind": "APIResourceList",
                    "apiVersion": "v1",
                    "groupVersion": f"{group}/{version}",
                    "resources": [_resource(name, group) for name in _names(group)],
                },
            )
            stub = {"openapi": "3.0.0", "info": _info(f"{group}/{version}"), "paths": {}}
            yield f"/openapi/v3/apis/{group}/{version}", stub
            fingerprint = hashlib.sha256(json.dumps(stub).encode()).hexdigest()[:32]
            where = f"/openapi/v3/apis/{group}/{version}?hash={fingerprint}"
            paths[f"apis/{group}/{version}"] = {"serverRelativeURL": where}
    yield "/openapi/v3", {"paths": paths}


def _names(group: str) -> list[str]:
    if group == EXTERNAL_GROUP:
        return [REPLICAS]
    return [f"{resource}/{metric}" for resource, metrics in SUBRESOURCES.items() for metric in metrics]


def _kind(group: str) -> str:
    return "ExternalMetricValueList" if group == EXTERNAL_GROUP else "MetricValueList"


def _info(title: str) -> Document:
    return {"title": title, "version": "v1"}


def _group(group: str) -> Document:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in VERSIONS[group]]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resource(name: str, group: str) -> Document:
    return {"name": name, "singularName": "", "namespaced": True, "kind": _kind(group), "verbs": ["get"]}


def _aggregated(groups: tuple[str, ...], discovery: str) -> DiscoveryDocument:
    """discovery: the version of the discovery format."""
    items = [
        {
            "metadata": {"name": group, "creationTimestamp": None},
            "versions": [
                {"version": version, "freshness": "Current", "resources": _resources(group, version)}
                for version in VERSIONS[group]
            ],
        }
        for group in groups
    ]
    document = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{discovery}",
        "metadata": {},
        "items": items,
    }
    return DiscoveryDocument(f"{JSON};{_AGGREGATED.format(discovery)}", document)


def _resources(group: str, version: str) -> list[Document]:
    """In this form the metrics of an object are subresources of a resource without verbs."""
    kind = {"group": group, "version": version, "kind": _kind(group)}
    if group == EXTERNAL_GROUP:
        return [{"resource": REPLICAS, **_namespaced(), "responseKind": kind, "verbs": ["get"]}]
    return [
        {
            "resource": resource,
            **_namespaced(),
            # client-go 0.26 reads it without a check that it exists.
            "responseKind": {"group": "", "version": "", "kind": ""},
            "verbs": [],
            "subresources": [{"subresource": metric, "responseKind": kind, "verbs": ["get"]} for metric in metrics],
        }
        for resource, metrics in SUBRESOURCES.items()
    ]


def _namespaced() -> Document:
    return {"scope": "Namespaced", "singularResource": ""}
