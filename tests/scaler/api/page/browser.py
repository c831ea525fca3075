"""Drives a headless Chromium through its DevTools protocol over a WebSocket, as a person uses a browser.

`async with chromium(path, folder) as browser`, then `page = await browser.page(url)`. Nothing sleeps: `until` waits in
the browser for a condition to hold.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--disable-extensions", "--process-per-site", "--renderer-process-limit=1", "--disable-site-isolation-trials",
    "--disable-background-timer-throttling", "--remote-debugging-port=0",
)  # fmt: skip
PATIENCE_S = 90.0  # a page on a busy machine is slow and has not failed
LARGEST = 64 * 2**20  # a screenshot is one message
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "ArrowDown": (40, ""), "ArrowUp": (38, ""), "ArrowLeft": (37, ""),
        "End": (35, ""), "Home": (36, ""), "Tab": (9, "")}  # fmt: skip


@dataclass
class Wire:
    """Holds one connection for all pages. Passes responses to their callers and events to the page of the session."""

    socket: aiohttp.ClientWebSocketResponse
    waiting: dict[int, asyncio.Future] = field(default_factory=dict)
    pages: dict[str, Page] = field(default_factory=dict)
    last: int = 0

    async def call(self, method, session=None, **params):
        self.last += 1
        answer = self.waiting[self.last] = asyncio.get_running_loop().create_future()
        about = {"id": self.last, "method": method, "params": params} | ({"sessionId": session} if session else {})
        await self.socket.send_json(about)
        async with asyncio.timeout(PATIENCE_S):
            return await answer

    async def listen(self):
        async for message in self.socket:
            received = json.loads(message.data)
            if "id" in received:
                answer = self.waiting.pop(received["id"])
                if "error" in received:
                    answer.set_exception(RuntimeError(received["error"]["message"]))
                elif not answer.cancelled():
                    answer.set_result(received["result"])
            elif received.get("sessionId") in self.pages:
                self.pages[received["sessionId"]].receive(received["method"], received["params"])

    async def page(self, url, width=1280, height=800):
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = self.pages[attached["sessionId"]] = Page(self, attached["sessionId"], target["targetId"])
        for domain in ("Page", "Runtime", "Network", "Log"):
            await page.call(f"{domain}.enable")
        await page.size(width, height)
        await page.call("Page.navigate", url=url)
        return page

    async def close(self, page):
        del self.pages[page.session]
        await self.call("Target.closeTarget", targetId=page.target)


@dataclass
class Page:
    """Controls one tab. errors: of the console, with breaches of the policy. requested: every requested address."""

    wire: Wire
    session: str
    target: str
    errors: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    async def call(self, method, **params):
        return await self.wire.call(method, self.session, **params)

    def receive(self, method, params):
        match method:
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description") or details["text"])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.errors.append(json.dumps(params["args"]))
            case "Log.entryAdded":
                entry = params["entry"]
                # A 404 or a lost server is for the page to handle; Network events record it.
                if entry["level"] == "error" and entry["source"] != "network":
                    self.errors.append(f"{entry['text']} {entry.get('url', '')}")
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])

    async def evaluate(self, expression):
        """Returns the awaited value of a JavaScript expression. Raises RuntimeError if it throws."""
        done = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"].get("exception", {}).get("description"))
        return done["result"].get("value")

    async def until(self, expression):
        """Waits until the expression is true. Returns its value. It may throw in the meantime."""
        look = f"""new Promise((resolve) => {{
            const look = () => {{
                let value = null;
                try {{ value = ({expression}); }} catch (error) {{ value = null; }}
                if (value) resolve(value); else setTimeout(look, 30);
            }};
            look();
        }})"""
        try:
            return await self.evaluate(look)
        except TimeoutError:
            text = await self.evaluate("document.body.innerText.slice(0, 1000)")
            raise AssertionError(f"never true: {expression}\nerrors: {self.errors}\n{text}") from None

    async def press(self, key):
        code, text = KEYS.get(key, (ord(key.upper()[0]), key))
        about = {"key": key, "windowsVirtualKeyCode": code} | ({"text": text} if text else {})
        await self.call("Input.dispatchKeyEvent", type="keyDown", **about)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def size(self, width, height, scale=1):
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=width < 600,
        )  # fmt: skip

    async def colours(self, scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def picture(self, whole=False):
        """Returns a PNG of the visible part, or of the whole page."""
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])


@asynccontextmanager
async def chromium(path, folder) -> AsyncIterator[Wire]:
    """Runs a Chromium. folder: an empty folder for its profile."""
    process = await asyncio.create_subprocess_exec(
        path, *FLAGS, f"--user-data-dir={folder}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE_S):
            line = b""
            while b"DevTools listening on " not in line:
                line = await process.stderr.readline()
                assert line, "chromium ended before it listened"
        drain = asyncio.create_task(_drain(process.stderr))
        address = line.decode().split()[-1]
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(address, max_msg_size=LARGEST, heartbeat=None) as socket,
        ):
            wire = Wire(socket)
            listening = asyncio.create_task(wire.listen())
            try:
                yield wire
            finally:
                listening.cancel()
                drain.cancel()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _drain(stream):
    while await stream.read(2**16):
        pass
