"""Serves metrics pages and a fake API server for the checks of `tidegate doctor`."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from aiohttp import web

from scaler.config import parse
from tests.fakes.kubernetes import serving, write_kubeconfig


class Pages:
    """Serves pages on loopback. `url = pages.at("/metrics", text)`; date: the Date header of each response."""

    def __init__(self):
        self.port, self.date, self.texts = 0, None, {}

    def at(self, path, text, status=200):
        self.texts[path] = (status, text)
        return f"http://127.0.0.1:{self.port}{path}"

    async def answer(self, request):
        status, text = self.texts.get(request.path, (404, "not found\n"))
        return web.Response(text=text, status=status, headers={"Date": self.date} if self.date else {})


@pytest.fixture
async def pages():
    served = Pages()
    app = web.Application()
    app.router.add_get("/{path:.*}", served.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.port = runner.addresses[0][1]
    yield served
    await runner.cleanup()


@pytest.fixture
async def fake():
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(serving())


@pytest.fixture
def config(fake, tmp_path):
    """`config("events: false", more)`: a configuration with the fake API server."""
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", fake.url)

    def build(kubernetes="", more=""):
        text = f"kubernetes: {{kubeconfig: {kubeconfig}{', ' if kubernetes else ''}{kubernetes}}}\n{more}"
        return parse(text, "c.yaml")[0]

    return build


@pytest.fixture
def statuses():
    """`statuses(checks)`: the status of each check by its name."""
    return lambda checks: {check.name: check.status for check in checks}
