"""Pages at addresses of their own: each pod of the storyboards has a 127.0.0.0/8 address, as each has one in a cluster,
and one port serves them all. They are served from a thread, because the daemon that asks outlives any test's loop.

Worked example: `page = pages.open("127.0.1.7")` listens at `127.0.1.7:{pages.port}`; `page.text = "…"` is what it says
from now on, `page.behaviour = "hang"` makes it answer nobody, `pages.close("127.0.1.7")` makes its port refuse.
"""

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from aiohttp import web

PATIENCE_S = 20.0  # never waited for: only says which call hung


@dataclass
class Page:
    """behaviour: "ok", "hang" (takes the question and says nothing) or "error" (HTTP 500). asked: how often."""

    address: str
    text: str = ""
    behaviour: str = "ok"
    asked: int = 0


class Pages:
    def __init__(self, loop):
        self.port = 0  # chosen by the first page
        self._loop = loop
        self._numbers = count(257)
        self._open = {}  # address: (page, site)
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        self._call(self._runner.setup())

    def new_address(self):
        """One that no pod has had."""
        high, low = divmod(next(self._numbers), 256)
        return f"127.0.{high}.{low}"

    def open(self, address):
        """A page there, from now on."""
        page = Page(address)
        site = web.TCPSite(self._runner, address, self.port)
        self._call(site.start())
        self.port = self.port or self._runner.addresses[0][1]
        self._open[address] = page, site
        return page

    def close(self, address):
        """Nobody listens there, from now on."""
        if address in self._open:
            _, site = self._open.pop(address)
            self._call(site.stop())

    def end(self):
        self._call(self._runner.cleanup())

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    async def _answer(self, request):
        page, _ = self._open.get(request.transport.get_extra_info("sockname")[0], (None, None))
        if page is None:  # closed, and this connection had been kept open
            request.transport.abort()
            return web.Response()
        page.asked += 1
        match page.behaviour:
            case "hang":
                await asyncio.Event().wait()  # until whoever asks goes away
            case "error":
                return web.Response(status=500)
        return web.Response(text=page.text)


@contextmanager
def serving_pages():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="pages")
    thread.start()
    pages = None
    try:
        pages = Pages(loop)
        yield pages
    finally:
        if pages is not None:
            pages.end()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()
