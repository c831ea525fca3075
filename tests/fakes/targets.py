"""Servers of metrics targets with content and failures that a test sets. The one class of target is `Target`.

`serving_targets()` gives each target an address of 127.0.0.0/8, as each pod of a cluster has its own, and all of them
one port. A thread serves them, because the daemon that scrapes them outlives any test's event loop. Worked example:
`target = targets.open("127.0.1.7")` listens at `127.0.1.7:{targets.port}`; `target.body = "…"` sets its response,
`target.behaviour = "hang"` leaves every scrape without a response, and `targets.close("127.0.1.7")` makes its port
refuse connections.

`serving_named_targets()` serves them by path in the test's own event loop: `targets["engine"].body = …`, at
`targets.url("engine")`.
"""

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count

from aiohttp import web

PATIENCE_S = 60.0  # never reached: only shows which call hung


@dataclass
class Target:
    """behaviour: "ok", "error" (HTTP 500), "hang" (no response until `release` is set), "endless" or "closed".

    scrapes: the number of requests so far. calls: the paths of POST requests, all of which succeed.
    """

    address: str = ""
    body: str | bytes = ""
    behaviour: str = "ok"
    scrapes: int = 0
    calls: list = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def respond(self, request):
        if request.method == "POST":
            self.calls.append(request.match_info["call"])
            return web.Response()
        self.scrapes += 1
        match self.behaviour:
            case "error":
                return web.Response(status=500, text="no")
            case "hang":
                await self.release.wait()
            case "closed":
                request.transport.abort()
            case "endless":
                return await self._endless(request)
        return web.Response(body=self.body.encode() if isinstance(self.body, str) else self.body)

    @staticmethod
    async def _endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b'vllm:num_requests_waiting{model_name="m"} 1\n' * 1000)
        except (ConnectionError, asyncio.CancelledError):
            pass
        return response


class TargetServer:
    def __init__(self, loop):
        self.port = 0  # chosen by the first target
        self._loop = loop
        self._numbers = count(257)
        self._open = {}  # address: (target, site)
        app = web.Application()
        app.router.add_get("/metrics", self._respond)
        app.router.add_post("/{call}", self._respond)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        self._call(self._runner.setup())

    def new_address(self):
        """An address that no pod has had."""
        high, low = divmod(next(self._numbers), 256)
        return f"127.0.{high}.{low}"

    def open(self, address):
        """Open a target at the address."""
        target = Target(address)
        site = web.TCPSite(self._runner, address, self.port)
        self._call(site.start())
        self.port = self.port or self._runner.addresses[0][1]
        self._open[address] = target, site
        return target

    def close(self, address):
        """Refuse connections at the address from now on."""
        if address in self._open:
            _, site = self._open.pop(address)
            self._call(self._stop(site))

    async def _stop(self, site):
        # CPython 3.11 never closes a connection that is accepted in the turn of the loop in which its server closes.
        for listening in site._server.sockets:
            self._loop.remove_reader(listening)
        await asyncio.sleep(0)
        await site.stop()

    def end(self):
        for address in list(self._open):
            self.close(address)
        self._call(self._runner.cleanup())
        self._call(asyncio.sleep(0.01))  # connections close in the next turns of the loop

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    async def _respond(self, request):
        target, _ = self._open.get(request.transport.get_extra_info("sockname")[0], (None, None))
        if target is None:  # closed, but this connection had been kept open
            request.transport.abort()
            return web.Response()
        return await target.respond(request)


@contextmanager
def serving_targets():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="targets")
    thread.start()
    targets = None
    try:
        targets = TargetServer(loop)
        yield targets
    finally:
        if targets is not None:
            targets.end()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


class NamedTargets(dict):
    """Targets by name; a name that is missing becomes a target."""

    port = 0

    def __missing__(self, name):
        self[name] = Target()
        return self[name]

    def url(self, name):
        return f"http://127.0.0.1:{self.port}/{name}"


@asynccontextmanager
async def serving_named_targets():
    targets = NamedTargets()
    app = web.Application()

    async def respond(request):
        return await targets[request.match_info["name"]].respond(request)

    app.router.add_get("/{name}", respond)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    targets.port = runner.addresses[0][1]
    try:
        yield targets
    finally:
        for target in targets.values():
            target.release.set()
        await runner.cleanup()
