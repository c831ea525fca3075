"""Runs asyncio with threads of their own for name look-ups.

asyncio runs `getaddrinfo` in its default executor, which `asyncio.to_thread` uses too: 6 threads on two cores. A name
server that does not respond holds a look-up for up to a minute (5 s, twice, for each search domain), so a few such
names delay /metrics, checkpoints and replication frames for that long. aiohttp, the Redis client and asyncio's streams
all resolve through `loop.getaddrinfo`.

Worked example: `run(serve())` is `asyncio.run(serve())` on this loop. While 64 look-ups hang, `asyncio.to_thread(f)`
returns as soon as `f` does, and a 65th look-up waits for one of them to end.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, TypeVar

# As many as `scrape.concurrency` requests by default. A thread that waits for a name server costs some 30 kB.
LOOKUPS = 64
# Seconds that another thread may keep the interpreter once the event loop needs it. The loop gives the interpreter up
# with each read and write of a socket: by default (5 ms) 64 requests take 0.32 s while a thread parses objects.
SWITCH_S = 0.0005

Result = TypeVar("Result")
Lookup = asyncio.Task[list[Any]]


class EventLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop, except that name look-ups have threads of their own, at most LOOKUPS of them.

    Requests for the same name share one look-up, so a name that hangs holds one thread however often it is requested.
    The threads are daemons: the process ends without waiting for them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._turns = asyncio.Semaphore(LOOKUPS)
        self._lookups: dict[tuple[object, ...], Lookup] = {}

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - the name that asyncio gives it
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        query = (host, port, family, type, proto, flags)
        lookup = self._lookups.get(query)
        if lookup is None:
            lookup = self._lookups[query] = self.create_task(self._look_up(query), name=f"look-up {host}")
            lookup.add_done_callback(partial(self._ended, query))
        # A caller that gives up does not end the look-up: the next caller for that name waits for the same one.
        return await asyncio.shield(lookup)

    def _ended(self, query: tuple[object, ...], lookup: Lookup) -> None:
        del self._lookups[query]
        if not lookup.cancelled():
            lookup.exception()  # marks it as retrieved, because every caller may have given up

    async def _look_up(self, query: tuple[Any, ...]) -> list[Any]:
        async with self._turns:
            answer: asyncio.Future[list[Any]] = self.create_future()
            try:
                Thread(target=self._answer, args=(query, answer), name=f"look-up {query[0]}", daemon=True).start()
            except RuntimeError as error:  # the container may have no more threads
                raise OSError(f"no thread for a name look-up: {error}") from error
            return await answer

    def _answer(self, query: tuple[Any, ...], answer: asyncio.Future[list[Any]]) -> None:
        """In the thread of one look-up."""
        try:
            settle = partial(_settle, answer.set_result, answer, socket.getaddrinfo(*query))
        except Exception as error:  # noqa: BLE001 - it is raised where the look-up is awaited
            settle = partial(_settle, answer.set_exception, answer, error)
        with suppress(RuntimeError):  # the loop has closed
            self.call_soon_threadsafe(settle)


def _settle(set_outcome: Any, answer: asyncio.Future[list[Any]], outcome: object) -> None:
    if not answer.done():
        set_outcome(outcome)


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """`asyncio.run` on an `EventLoop`, which other threads delay by SWITCH_S at a time. Raises the limit of open files
    to what the process may have, as every program in Go does: each target has a connection, and 1,024 is a usual limit.
    """
    sys.setswitchinterval(SWITCH_S)
    with suppress(ImportError, OSError, ValueError):  # not on Windows, and not in every sandbox
        import resource  # noqa: PLC0415

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with asyncio.Runner(loop_factory=EventLoop) as runner:
        return runner.run(main)
