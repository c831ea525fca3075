"""Refuses the live page and its API while the event loop is overloaded: KEDA and the metrics API come first.

One event loop answers all clients. If its callbacks wait, what people look at is answered with 503 and Retry-After, so
that KEDA, the metrics API, probes and /metrics wait less. The lag is that of a sleep which ends late; its mean decides,
so that a single stall refuses nothing, and it has to fall well below the bound before the page is served again.

Worked example: sleeps of 0.1 s end 1.0 s late. After the first the mean is 0.1 s, after the third 0.271 s: above
`BEGINS_S`, the page is refused. Once they end in time, the mean falls by a tenth each: below `ENDS_S` after 17 sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

PROBE_S = 0.1
SHARE = 0.1  # of the last lag in its mean: of the last ten sleeps, about
BEGINS_S, ENDS_S = 0.25, 0.05
RETRY_S = 5
IMPORTANT = frozenset({"/metrics", "/livez", "/readyz"})


@dataclass(slots=True)
class LoopLag:
    """mean_s: seconds by which sleeps end late. overloaded: whether the page is refused."""

    mean_s: float = 0.0
    overloaded: bool = False

    def observe(self, late_s: float) -> None:
        self.mean_s += SHARE * (max(late_s, 0.0) - self.mean_s)
        self.overloaded = self.mean_s > (ENDS_S if self.overloaded else BEGINS_S)

    async def watch(self, now: Callable[[], float], sleep: Callable[[float], Awaitable[object]]) -> None:
        """Until cancelled. now: monotonic seconds."""
        while True:
            due = now() + PROBE_S
            await sleep(PROBE_S)
            self.observe(now() - due)


async def watch(lag: LoopLag) -> None:
    """Observes the running event loop until cancelled."""
    await lag.watch(asyncio.get_running_loop().time, asyncio.sleep)


def shed(lag: LoopLag, count: Callable[[], None]) -> Middleware:
    """A middleware that refuses all but IMPORTANT under overload. count: called for each request that is refused."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if lag.overloaded and request.path not in IMPORTANT:
            count()
            text = f"overloaded: the event loop is {lag.mean_s:.2f} s late; KEDA and the metrics API are served first"
            headers = {"Retry-After": str(RETRY_S)}
            return web.json_response({"error": text}, status=HTTPStatus.SERVICE_UNAVAILABLE, headers=headers)
        return await handler(request)

    return check
