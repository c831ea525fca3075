"""Builds and parses Leases of the Kubernetes API, through which one of several replicas is elected.

The times in a Lease are of its holder's clock and only for people; they are never compared with another clock. Each
write names the version it replaces, so that of two concurrent writes one is refused (409).

Worked example: `read("get lease ai/t", b'{"metadata": {"resourceVersion": "7"}, "spec": {"holderIdentity": "a"}}')` is
`Lease(holder="a", version="7")`, and `document("ai", "t", lease)` of it is the body that renews it from version 7 on.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol

from .fields import FieldError, Fields, micro_time
from .protocol import ApiFailure, Document, excerpt

ADDRESS = "tidegate.dev/peer-address"  # HOST:PORT where the other replicas reach the holder


class Lease(NamedTuple):
    """holder:      "" if it was released.
    address:     HOST:PORT of the holder; "" if missing.
    duration_s:  seconds for which it is valid after each renewal; 0.0 if missing.
    acquired_at: POSIX seconds of the holder's clock; None if missing. Also renewed_at.
    transitions: how often it changed hands.
    version:     of the object that this was read from; "" for one that does not exist yet.
    """

    holder: str
    address: str = ""
    duration_s: float = 0.0
    acquired_at: float | None = None
    renewed_at: float | None = None
    transitions: int = 0
    version: str = ""


class Leases(Protocol):
    """The API calls that leader election uses. Each raises ApiFailure."""

    async def lease(self, namespace: str, name: str) -> Lease | None:
        """None if there is none."""

    async def write_lease(self, namespace: str, name: str, lease: Lease) -> Lease:
        """Create it (version "") or replace that version; returns it with the new one. If another write was first, the
        ApiFailure's status is 409.
        """


def document(namespace: str, name: str, lease: Lease) -> Document:
    metadata: Document = {"name": name, "namespace": namespace, "annotations": {ADDRESS: lease.address}}
    if lease.version:
        metadata["resourceVersion"] = lease.version
    spec: Document = {
        "holderIdentity": lease.holder,
        "leaseDurationSeconds": max(1, round(lease.duration_s)),  # the API refuses 0
        "acquireTime": None if lease.acquired_at is None else micro_time(lease.acquired_at),
        "renewTime": None if lease.renewed_at is None else micro_time(lease.renewed_at),
        "leaseTransitions": lease.transitions,
    }
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def read(action: str, body: bytes) -> Lease:
    """Raises ApiFailure if the body is no Lease. A field of a wrong type counts as missing, and so does a time without
    a time zone: every writer of Leases in the namespace may write anything.
    """
    try:
        found = json.loads(body)
        metadata, spec = found["metadata"], found.get("spec") or {}
        version = metadata["resourceVersion"]
        annotations = metadata.get("annotations") or {}
        return Lease(
            holder=_text(spec.get("holderIdentity")),
            address=_text(annotations.get(ADDRESS)),
            duration_s=float(_count(spec.get("leaseDurationSeconds"))),
            acquired_at=_time(spec, "acquireTime"),
            renewed_at=_time(spec, "renewTime"),
            transitions=_count(spec.get("leaseTransitions")),
            version=_text(version),
        )
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ApiFailure(None, f"{action}: no Lease: {excerpt(body)!r}") from error


def _time(spec: Document, key: str) -> float | None:
    try:
        return Fields(spec).time(key)
    except FieldError:
        return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
