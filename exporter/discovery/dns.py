"""Lists the targets of a headless Service, one for each address of its name, and static targets.

"No such name" and "no addresses" are answers: nothing is ready. A resolver that fails or times out has not answered:
the last list stays valid for a while, then it is unknown. So a failure of DNS never reads as pods that are gone.

Worked example: `chat.ai.svc` resolves to 10.0.0.7 and 10.0.0.8: two targets. If it also resolves to fd00::7 and
fd00::8, those are other addresses of the same two pods, and there are still two targets.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable

from exporter.model import Target, WorkloadKey

from . import Listing

# Errors of getaddrinfo that mean "no addresses". EAI_NODATA is -5 where it exists (glibc), and some platforms do not
# name it.
NO_ADDRESS = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", -5)}

Resolve = Callable[[str], Awaitable[set[str]]]


async def resolve(name: str) -> set[str]:
    """All addresses of a name; empty if it has none. Raises OSError or UnicodeError if the look-up fails.

    On `exporter.event_loop` a look-up has its own thread, and look-ups of one name share it: a name server that does
    not answer blocks getaddrinfo for up to a minute.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in NO_ADDRESS:
            return set()
        raise
    return {str(sockaddr[0]) for *_, sockaddr in found}


class DnsTargets:
    """Lists one target for each address of a name."""

    def __init__(
        self,
        name: str,
        target_at: Callable[[str], Target],
        *,
        owner: WorkloadKey | None,
        timeout_s: float,
        keep_s: float,
        resolver: Resolve = resolve,
    ) -> None:
        """keep_s: seconds for which the last list stays valid without an answer."""
        self.owner = owner
        self.failure: str | None = None
        self._name, self._target_at = name, target_at
        self._timeout_s, self._keep_s, self._resolver = timeout_s, keep_s, resolver
        self._listing: Listing | None = None
        self._answered_at = float("-inf")

    def listing(self) -> Listing | None:
        return self._listing

    async def refresh(self, now: float) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await self._resolver(self._name)
        except TimeoutError:
            self._fail(f"no answer within {self._timeout_s:g} s", now)
        except (OSError, UnicodeError) as error:
            self._fail(str(error), now)
        else:
            self.failure, self._answered_at = None, now
            self._listing = Listing(tuple(self._target_at(address) for address in sorted(_one_family(found))))

    def _fail(self, reason: str, now: float) -> None:
        self.failure = f"{self._name}: {reason}"
        if now - self._answered_at > self._keep_s:
            self._listing = None


def _one_family(found: set[str]) -> set[str]:
    """IPv4 if there is any. A dual-stack Service lists each pod under both families, and a pod counts once."""
    return {address for address in found if ":" not in address} or found


class StaticTargets:
    """Lists the targets of the configuration, which never change."""

    def __init__(self, targets: Iterable[Target], owner: WorkloadKey | None = None) -> None:
        self._listing = Listing(tuple(targets))
        self.owner = owner

    def listing(self) -> Listing | None:
        return self._listing

    async def refresh(self, now: float) -> None:
        """Does nothing."""
