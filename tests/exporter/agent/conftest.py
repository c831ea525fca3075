"""Runs sources on loopback that may fail, a clock that the test advances, and the command as a subprocess."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.fakes.clock import PATIENCE_S, ManualClock


@pytest.fixture
async def clock():
    return ManualClock()


class ThreadedSources:
    """Serves an engine and a dcgm-exporter in a separate thread. `page[path]`: a page, a status, or None to hang."""

    def __init__(self):
        self.page = {}
        self.port = 0
        self._loop, self._ready, self._over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)

    def url(self, path):
        return f"http://127.0.0.1:{self.port}/{path}"

    def stop(self):
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _serve(self):
        runner = self._loop.run_until_complete(self._begin())
        self._ready.set()
        self._loop.run_until_complete(self._over.wait())
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _begin(self):
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        return runner

    async def _answer(self, request):
        answer = self.page.get(request.match_info["path"], 404)
        if answer is None:
            await self._over.wait()
        return web.Response(status=answer) if isinstance(answer, int) else web.Response(text=answer)


@pytest.fixture
def beside():
    served = ThreadedSources()
    yield served
    served.stop()


class Command:
    """Runs `tidegate export`. logs: its log entries as dictionaries; noise: all other lines."""

    def __init__(self, file, environment, options):
        self.process = subprocess.Popen(
            [sys.executable, *options, "-m", "scaler", "export", "--config", str(file)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **environment}, text=True,
        )  # fmt: skip
        self.logs, self.noise = [], []

    def until(self, event, **fields):
        """Returns the next log entry with this event and these fields."""
        return self.until_any(event, **fields)

    def until_any(self, *events, **fields):
        for line in self.process.stderr:
            if not line.startswith("{"):
                self.noise.append(line.rstrip("\n"))
                continue
            entry = json.loads(line)
            self.logs.append(entry)
            if entry["event"] in events and fields.items() <= entry.items():
                return entry
        raise AssertionError(f"no log entry {events}: {self.logs} {self.noise}")

    @property
    def status(self):
        """Returns the sizes in /proc/PID/status, such as VmRSS, in KiB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines()
        return {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)
                if rest.endswith(" kB")}  # fmt: skip

    def end(self, number=signal.SIGTERM):
        """Ends the command. Returns its exit status; its last lines are in `noise`."""
        self.process.send_signal(number)
        for line in self.process.stderr:
            self.noise.append(line.rstrip("\n"))
        return self.process.wait(PATIENCE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.stderr.close()
        self.process.wait()


@pytest.fixture
def export(tmp_path):
    """`with export("listen: …", options=[…], TIDEGATE_…=…) as command:` runs the command with that configuration."""

    def start(text, options=(), **environment):
        file = tmp_path / "export.yaml"
        file.write_text(text, encoding="utf-8")
        return Command(file, environment, options)

    return start


@pytest.fixture
async def get():
    """`status, text = await get(port, "/metrics")`."""
    async with aiohttp.ClientSession() as session:

        async def get(port, path, **headers):
            async with (
                asyncio.timeout(PATIENCE_S),
                session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as response,
            ):
                return response.status, await response.text()

        yield get
