"""Targets behind a headless Service: one for each address its name resolves to.

A resolver that answers "no such name" or "no addresses" has answered: nothing is ready. One that fails or does not
answer has not: the last list stands for a while, then the list is unknown. A ready pod that is missing from one answer
is thus never mistaken for a pod that is gone because DNS was.

Worked example: `chat.ai.svc` resolves to 10.0.0.7 and 10.0.0.8: two targets, whatever `target_at` makes of them. If it
also resolves to fd00::7 and fd00::8, those are the same two pods by their other addresses, and still two targets.

Targets written down in the configuration: always known, never changing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from threading import Thread

from exporter.model import Target, WorkloadKey

from . import Listing

# What getaddrinfo says when the answer is "nothing there". EAI_NODATA is -5 where it exists (glibc), and some
# platforms do not name it.
NOTHING_THERE = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", -5)}

Resolve = Callable[[str], Awaitable[set[str]]]


class SystemResolver:
    """All addresses of a name, as the system resolves it; an empty set if it says that there are none.

    A lookup has a thread of its own, which nobody waits for at the end: a name server that does not answer holds
    getaddrinfo for up to a minute (5 s, twice, for each search domain), and a few such names would fill asyncio's
    shared threads, on which much else waits. One lookup at a time, so that such threads do not pile up.
    """

    def __init__(self, lookup: Callable[[str], set[str]] | None = None) -> None:
        """`lookup`: asks and waits for the answer; by default getaddrinfo."""
        self._lookup = lookup or addresses
        self._asking = False

    async def __call__(self, name: str) -> set[str]:
        """Raises OSError or UnicodeError if there is no answer."""
        if self._asking:
            raise OSError("the previous lookup has not ended")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[set[str] | Exception] = loop.create_future()

        def settle(found: set[str] | Exception) -> None:
            if not answer.done():
                answer.set_result(found)

        def ask() -> None:
            found: set[str] | Exception
            try:
                found = self._lookup(name)
            except Exception as error:  # noqa: BLE001 - it is raised below, where somebody waits for it
                found = error
            self._asking = False
            with suppress(RuntimeError):  # the loop has closed: nobody wants to know any more
                loop.call_soon_threadsafe(settle, found)

        self._asking = True
        try:
            Thread(target=ask, name=f"resolve {name}", daemon=True).start()
        except RuntimeError as error:  # the container may have no more
            self._asking = False
            raise OSError(f"no thread to ask in: {error}") from error
        found = await answer
        if isinstance(found, Exception):
            raise found
        return found


def addresses(name: str) -> set[str]:
    """What getaddrinfo says; nothing if it says that nothing is there. Raises OSError or UnicodeError if it fails."""
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
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
        resolver: Resolve | None = None,
    ) -> None:
        """`keep_s`: seconds for which the last answer stands when the resolver (by default the system's) fails."""
        self.owner = owner
        self.failure: str | None = None
        self._name, self._target_at = name, target_at
        self._timeout, self._keep, self._resolver = timeout_s, keep_s, resolver or SystemResolver()
        self._listing: Listing | None = None
        self._answered_at = float("-inf")

    def listing(self) -> Listing | None:
        return self._listing

    async def refresh(self, now: float) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                found = await self._resolver(self._name)
        except TimeoutError:
            self._unanswered(f"no answer within {self._timeout:g} s", now)
        except (OSError, UnicodeError) as error:
            self._unanswered(str(error), now)
        else:
            self.failure, self._answered_at = None, now
            self._listing = Listing(tuple(self._target_at(address) for address in sorted(_one_family(found))))

    def _unanswered(self, why: str, now: float) -> None:
        self.failure = f"{self._name}: {why}"
        if now - self._answered_at > self._keep:
            self._listing = None


def _one_family(found: set[str]) -> set[str]:
    """IPv4 if there is any. A dual-stack Service lists each pod under both families, and a pod counts once."""
    return {address for address in found if ":" not in address} or found


class StaticTargets:
    def __init__(self, targets: Iterable[Target], owner: WorkloadKey | None = None) -> None:
        self._listing = Listing(tuple(targets))
        self.owner = owner

    def listing(self) -> Listing | None:
        return self._listing

    async def refresh(self, now: float) -> None:
        """Nothing to look up."""
