"""Which source would show the next request to a workload at zero replicas. Pure.

What its gateway's kind can show, and not whether the page does: that is seen when it is asked, and is on the Board.

Worked example: a workload with `gateway: {url: …, kind: envoy}` is woken by "refused requests (envoy)", one without a
gateway by nothing, so it keeps a replica.
"""

from __future__ import annotations

from exporter.catalog import KINDS

from .workload import Workload

_SHOWN = {
    "queue": "the queue",
    "in_flight": "the requests in flight",
    "refused": "refused requests",
    "counted": "the count of requests",
}


def at_zero(workload: Workload) -> str:
    """What a request at zero replicas moves on its gateway's page: as `Kind.at_zero`."""
    return KINDS[workload.gateway_kind].at_zero if workload.gateway is not None else "nothing"


def woken_by(workload: Workload) -> str:
    """A clause for a person."""
    if not workload.replicas.sleeps:
        return "never asleep: replicas.min is above 0"
    shown = _SHOWN.get(at_zero(workload))
    if shown is None:
        return "kept at one replica at least: nothing would see a request at zero (reason no_waker)"
    return f"woken by {shown} of its gateway ({workload.gateway_kind})"
