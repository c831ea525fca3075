"""A Lease of the Kubernetes API, by which one of several replicas is chosen: documents in, values out.

Who holds it, whether that is still so, and what to do about it, is not for this room to say. The times in a Lease are
of its holder's clock and for people alone; nobody compares them with a clock of their own. Every write names the
version it replaces, so that of two who write at once one is told so (409).

Worked example: `read("get lease ai/t", b'{"metadata": {"resourceVersion": "7"}, "spec": {"holderIdentity": "a"}}')` is
`Lease(holder="a", version="7")`, and `document("ai", "t", that)` is what to send to hold it as "a" from version 7 on.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from .fields import micro_time
from .protocol import ApiFailure, Document, start

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
ADDRESS = "tidegate.dev/peer-address"  # HOST:PORT where the other replicas ask the holder


class Lease(NamedTuple):
    """holder:      who has it; "" is: nobody, it was given back.
    address:     HOST:PORT where the holder is asked; "" where it does not say.
    duration_s:  seconds for which it holds after each renewal; 0.0 where it does not say.
    acquired_at: POSIX seconds of the holder's clock; None where it does not say. Also renewed_at.
    transitions: how often it changed hands.
    version:     of the object that this was read from; "" for one that is not there yet.
    """

    holder: str
    address: str = ""
    duration_s: float = 0.0
    acquired_at: float | None = None
    renewed_at: float | None = None
    transitions: int = 0
    version: str = ""


class Leases(Protocol):
    """What an election asks of the API. Each call raises ApiFailure."""

    async def lease(self, namespace: str, name: str) -> Lease | None:
        """As it is; None: there is none."""

    async def write_lease(self, namespace: str, name: str, lease: Lease) -> Lease:
        """Create it (version "") or replace that version; returns it with the new one. Somebody else was first: the
        ApiFailure's status is 409.
        """


def path(namespace: str, name: str = "") -> str:
    """Of the one Lease, or of all in the namespace, where a new one is posted."""
    own = LEASES.format(quote(namespace, safe=""))
    return f"{own}/{quote(name, safe='')}" if name else own


def right(namespace: str) -> str:
    """What to give Tidegate, should RBAC not allow it."""
    rule = 'apiGroups ["coordination.k8s.io"], resources ["leases"], verbs ["get", "create", "update"]'
    return f"give Tidegate's ServiceAccount a Role in {namespace} with {rule}"


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


def read(asked: str, body: bytes) -> Lease:
    """Raises ApiFailure if it is no Lease. What it does not say, or says in another type, is as if it were not there:
    whoever may write Leases in that namespace may write anything.
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
            acquired_at=_seconds(spec.get("acquireTime")),
            renewed_at=_seconds(spec.get("renewTime")),
            transitions=_count(spec.get("leaseTransitions")),
            version=_text(version),
        )
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        shown = start(body)
        raise ApiFailure(None, f"{asked}: no Lease: {shown!r}") from error


def _seconds(moment: Any) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else None
    except ValueError:
        return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
