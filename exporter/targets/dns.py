"""Targets behind a headless Service: one for each address its name resolves to.

A resolver that answers "no such name" or "no addresses" has answered: nothing is ready. One that fails or does not
answer has not: the last list stands for a while, then the list is unknown. A ready pod that is missing from one answer
is thus never mistaken for a pod that is gone because DNS was.

Worked example: `chat.ai.svc` resolves to 10.0.0.7 and fd00::7; with port 8000 the targets are
`http://10.0.0.7:8000/metrics` and `http://[fd00::7]:8000/metrics`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace

from exporter.model import Target, WorkloadKey

# What getaddrinfo says when the answer is "nothing there". EAI_NODATA is -5 where it exists (glibc), and some
# platforms do not name it.
NOTHING_THERE = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", -5)}

Resolve = Callable[[str, int], Awaitable[set[str]]]


async def resolve(name: str, port: int) -> set[str]:
    """All addresses of a name; an empty set if the resolver says there are none. Raises OSError if it cannot say."""
    loop = asyncio.get_running_loop()
    try:
        answers = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in NOTHING_THERE:
            return set()
        raise
    return {str(sockaddr[0]) for *_, sockaddr in answers}


class DnsTargets:
    """The addresses of one name. `template` is a target whose `url` has `{host}` in the host's place."""

    def __init__(
        self,
        name: str,
        port: int,
        template: Target,
        *,
        timeout_s: float,
        keep_s: float,
        resolver: Resolve = resolve,
    ) -> None:
        """`keep_s`: seconds for which the last answer stands when the resolver does not answer."""
        self.owner: WorkloadKey | None = template.owner
        self.failure: str | None = None
        self._name, self._port, self._template = name, port, template
        self._timeout, self._keep, self._resolver = timeout_s, keep_s, resolver
        self._targets: tuple[Target, ...] | None = None
        self._answered_at = float("-inf")

    def listing(self) -> tuple[Target, ...] | None:
        return self._targets

    async def refresh(self, now: float) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                addresses = await self._resolver(self._name, self._port)
        except (OSError, TimeoutError, UnicodeError) as error:
            self.failure = f"{self._name}: {error or 'no answer in time'}"
            if now - self._answered_at > self._keep:
                self._targets = None
            return
        self.failure, self._answered_at = None, now
        self._targets = tuple(
            replace(self._template, url=self._template.url.format(host=_bracketed(address)))
            for address in sorted(addresses)
        )


def _bracketed(address: str) -> str:
    """An IPv6 address stands in brackets in a URL, and its zone's % is escaped (RFC 6874)."""
    bare, _, zone = address.partition("%")
    if ipaddress.ip_address(bare).version == 4:  # noqa: PLR2004
        return bare
    return f"[{bare}%25{zone}]" if zone else f"[{bare}]"
