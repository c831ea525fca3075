"""Counts the open calls of each peer address, and refuses those above its quota. Pure but for the counts.

The quota follows from how KEDA calls. All calls come from one pod, KEDA's operator, and for each external trigger there
are at most four open at once: the streams StreamIsActive and StreamMetricSpec, one call of the poll, and one of the HPA
sync. 256 more are for tools, for health checks, and for the calls of triggers that were made a moment ago. So KEDA is
never refused, and one address cannot hold the calls of all.

Worked example: with 1,000 external triggers the quota of an address is 4 x 1000 + 256 = 4,256 calls. KEDA has 2,000
streams open and up to 2,000 polls. A pod that opens streams without end holds 4,256 of the server's 12,000 calls.

Above 1,468 triggers two such quotas are more than 12,000 calls. Then one address and KEDA together can reach the limit
of the whole server; only mutual TLS or a NetworkPolicy excludes such an address.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from .refusal import Seldom

CALLS_PER_TRIGGER: Final = 4
CALLS_BESIDE: Final = 256


def address(peer: str) -> str:
    """The address of a peer without its port, as gRPC names peers.

    `ipv4:10.0.0.5:43122` is `10.0.0.5`, `ipv6:%5B::1%5D:57574` is `::1`, `unix:` is `unix`.
    """
    kind, _, rest = peer.partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return kind
    return unquote(rest.rpartition(":")[0]).strip("[]")


class Quota:
    """Open calls by address.

    triggers: the number of external triggers that are known; None if that is not known. Then there is no quota: what
              is not known is not zero, and KEDA connects before the API server has been listed.
    """

    def __init__(self, triggers: Callable[[], int | None], refusals: Seldom) -> None:
        self._triggers = triggers
        self._open: Counter[str] = Counter()
        self._refusals = refusals

    def enter(self, peer: str) -> str | None:
        """Counts a call that begins. Returns why it is refused, or None. Either way `leave` must follow."""
        self._open[peer] += 1
        triggers, calls = self._triggers(), self._open[peer]
        if triggers is None:
            return None
        quota = CALLS_PER_TRIGGER * triggers + CALLS_BESIDE
        if calls <= quota:
            return None
        self._refusals.warn(peer, "calls of one peer refused", peer=peer, quota=quota)
        return (
            f"{peer} has too many calls open: must be at most {quota} ({CALLS_PER_TRIGGER} for each of {triggers} "
            f"external triggers and {CALLS_BESIDE}), got {calls}. The client at this address is at fault: it must end "
            "its streams"
        )

    def leave(self, peer: str) -> None:
        """Counts a call that ended."""
        self._open[peer] -= 1
        if not self._open[peer]:
            del self._open[peer]
