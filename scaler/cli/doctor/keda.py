"""Which KEDA a cluster has, by the Deployment of its operator. Pure.

Worked example: of a Deployment `keda-operator` with the image `ghcr.io/kedacore/keda:2.19.0@sha256:…` it is "2.19.0".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .check import Check, ok, warn

NAME = "KEDA"
OPERATOR = "keda-operator"
# Tidegate is tested with 2.19 and 2.20 (facts of what each does as a client are in docs/explanation/outages.md).
TESTED = (2, 19)
_VERSION_LABEL = "app.kubernetes.io/version"
_NUMBERS = re.compile(r"v?(\d+)\.(\d+)(?:\.\d+)?")


def version(deployments: Iterable[Mapping[str, Any]]) -> str | None:
    """deployments: documents as the API has them. None: no operator is among them; "" is: it does not say which."""
    for document in deployments:
        metadata = document.get("metadata") or {}
        labels = metadata.get("labels") or {}
        if OPERATOR in (metadata.get("name"), labels.get("app.kubernetes.io/name")):
            return _tag(document) or str(labels.get(_VERSION_LABEL) or "")
    return None


def check(found: str | None, *, served: bool) -> Check:
    """found: of `version`. served: the cluster has KEDA's ScaledObjects."""
    if not served:
        return ok(NAME, "the cluster has none: no ScaledObjects; the metrics API and configured workloads do without")
    if found is None:
        return ok(NAME, "its ScaledObjects are there; its operator is not in a namespace that can be seen")
    numbers = _NUMBERS.fullmatch(found.partition("-")[0])
    if numbers is None:
        return ok(NAME, f"its operator is there; its image does not say which version ({found or 'no tag'})")
    if (int(numbers[1]), int(numbers[2])) < TESTED:
        return warn(NAME, found, "upgrade it to 2.19 or later: Tidegate is tested with 2.19 and 2.20")
    return ok(NAME, found)


def _tag(document: Mapping[str, Any]) -> str:
    try:
        containers = document["spec"]["template"]["spec"]["containers"]
        image = str(next(each["image"] for each in containers if "keda" in str(each["image"])))
    except (KeyError, TypeError, StopIteration):
        return ""
    name, _, tag = image.partition("@")[0].rpartition(":")
    return tag if name and "/" not in tag else ""
