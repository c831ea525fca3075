"""Targets behind a headless Service: one for each address its name resolves to.

A resolver that answers "no such name" or "no addresses" has answered: nothing is ready. One that fails or does not
answer has not: the last list stands for a while, then the list is unknown. A ready pod that is missing from one answer
is thus never mistaken for a pod that is gone because DNS was.

Worked example: `chat.ai.svc` resolves to 10.0.0.7 and fd00::7: two targets, whatever `target_at` makes of them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from exporter.model import Target, WorkloadKey

# What getaddrinfo says when the answer is "nothing there". EAI_NODATA is -5 where it exists (glibc), and some
# platforms do not name it.
NOTHING_THERE = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", -5)}

Resolve = Callable[[str], Awaitable[set[str]]]


async def resolve(name: str) -> set[str]:
    """All addresses of a name; an empty set if the resolver says there are none. Raises OSError if it cannot say."""
    loop = asyncio.get_running_loop()
    try:
        answers = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in NOTHING_THERE:
            return set()
        raise
    return {str(sockaddr[0]) for *_, sockaddr in answers}


class DnsTargets:
    """The addresses of one name; `target_at` makes a target of an address."""

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
        """`keep_s`: seconds for which the last answer stands when the resolver does not answer."""
        self.owner = owner
        self.failure: str | None = None
        self._name, self._target_at = name, target_at
        self._timeout, self._keep, self._resolver = timeout_s, keep_s, resolver
        self._targets: tuple[Target, ...] | None = None
        self._answered_at = float("-inf")

    def listing(self) -> tuple[Target, ...] | None:
        return self._targets

    async def refresh(self, now: float) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                addresses = await self._resolver(self._name)
        except (OSError, TimeoutError, UnicodeError) as error:
            self.failure = f"{self._name}: {error or 'no answer in time'}"
            if now - self._answered_at > self._keep:
                self._targets = None
            return
        self.failure, self._answered_at = None, now
        self._targets = tuple(self._target_at(address) for address in sorted(addresses))
