"""`tidegate top` on a pseudo-terminal, against the real HTTP listener."""

import asyncio
import os
import pty
import sys
import termios
from types import SimpleNamespace

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from exporter.model import WorkloadKey
from scaler.api.http.health import HealthState
from scaler.api.http.server import WebServer
from scaler.engine.publisher import Publisher
from scaler.model import Decision, Evidence, Reason

CHAT = WorkloadKey("ai", "chat")
PATIENCE_S = 90.0


@pytest.fixture
async def daemon():
    """Runs an HTTP listener with one workload: `daemon.url`, `await daemon.stop()`."""
    publisher = Publisher([CHAT])
    evidence = Evidence(waiting=3.0, running=10.0, replicas_wanted=2, replicas_ready=2)
    publisher.publish([Decision(CHAT, 3, True, Reason.SERVING, 990.0, measured_at=999.0, evidence=evidence)], at=1000.0)
    health = HealthState(tick_s=1.0, started_at=1000.0, last_tick_at=1000.0)

    async def explain(request):
        return web.json_response({
            "workload": {"namespace": "ai", "name": request.match_info["name"]}, "summary": "explained", "now": 1000.0,
            "at": None, "log_begins_at": None, "follows": None, "chain": [], "changes": [],
        })  # fmt: skip

    more = [web.get("/api/v1/explain/{namespace}/{name}", explain)]
    server = WebServer("127.0.0.1", 0, lambda: publisher.board, health, CollectorRegistry(), lambda: 1000.0, more)
    yield SimpleNamespace(url=f"http://127.0.0.1:{await server.start()}", stop=server.stop)
    await server.stop()


@pytest.fixture
async def top():
    """`process = await top(*arguments, **streams)` starts the command; the process is killed after the test."""
    begun = []

    async def begin(*arguments, **streams):
        command = (sys.executable, "-m", "scaler", "top", *arguments)
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        begun.append(await asyncio.create_subprocess_exec(*command, env=environment, **streams))
        return begun[-1]

    yield begin
    for process in begun:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Terminal:
    """Holds a pseudo-terminal and the text written to it."""

    def __init__(self):
        self.ours, self.theirs = pty.openpty()
        termios.tcsetwinsize(self.theirs, (24, 100))
        self.shown, self._more = "", asyncio.Event()
        asyncio.get_running_loop().add_reader(self.ours, self._read)

    def _read(self):
        try:
            self.shown += os.read(self.ours, 2**16).decode(errors="replace")
        except OSError:  # the process has closed the terminal
            asyncio.get_running_loop().remove_reader(self.ours)
        self._more.set()

    @property
    def streams(self):
        return {"stdin": self.theirs, "stdout": self.theirs, "stderr": self.theirs}

    async def until(self, text):
        async with asyncio.timeout(PATIENCE_S):
            while text not in self.shown:
                self._more.clear()
                await self._more.wait()

    def press(self, key):
        os.write(self.ours, key.encode())

    def hang_up(self):
        if self.ours is not None:
            asyncio.get_running_loop().remove_reader(self.ours)
            os.close(self.ours)
            self.ours = None

    def close(self):
        self.hang_up()
        os.close(self.theirs)


@pytest.fixture
async def terminal():
    terminal = Terminal()
    yield terminal
    terminal.close()


async def test_all_rows_are_printed_once_in_a_pipe(daemon, top):
    process = await top("--server", daemon.url, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    (line,) = [line for line in output.decode().splitlines() if "ai/chat" in line]
    assert "2 → 3" in line
    assert "10 requests in progress, 3 waiting" in line
    assert "\x1b" not in output.decode()


async def test_unreachable_daemon_is_an_error_with_a_hint(daemon, top):
    await daemon.stop()
    process = await top("--server", daemon.url, stderr=asyncio.subprocess.PIPE)
    _, output = await process.communicate()
    assert process.returncode == 1
    address = daemon.url.removeprefix("http://")
    assert f"{daemon.url}/api/v1/rows: {address}: Connection refused." in output.decode()
    assert "port-forward" in output.decode()


async def test_terminal_shows_rows_keeps_them_after_a_failure_and_q_quits(daemon, terminal, top):
    before = termios.tcgetattr(terminal.theirs)
    process = await top("--server", daemon.url, "--interval", "0.1", **terminal.streams)
    await terminal.until("2 → 3")
    await daemon.stop()
    await terminal.until("data is")
    terminal.shown = ""
    await terminal.until("2 → 3")
    terminal.press("q")
    async with asyncio.timeout(PATIENCE_S):
        assert await process.wait() == 0
    assert termios.tcgetattr(terminal.theirs) == before, "the terminal is as it was"


async def test_hang_up_of_the_terminal_ends_it(daemon, terminal, top):
    """Otherwise the process would fetch and draw forever without a pause."""
    process = await top("--server", daemon.url, "--interval", "3600", **terminal.streams)
    await terminal.until("2 → 3")
    terminal.hang_up()
    async with asyncio.timeout(PATIENCE_S):
        await process.wait()


async def test_keys_select_explain_filter_sort_and_help(daemon, terminal, top):
    before = termios.tcgetattr(terminal.theirs)
    process = await top("--server", daemon.url, "--interval", "3600", **terminal.streams)
    await terminal.until("2 → 3")
    terminal.press("?")
    await terminal.until("filter by name, state or reason")
    terminal.press("\x1b")
    terminal.press("s")
    await terminal.until("by name")
    terminal.press("/nothing")
    await terminal.until("no workload matches the filter")
    terminal.press("\x1b")
    terminal.press("j\r")
    await terminal.until("explained")
    terminal.press("q")
    async with asyncio.timeout(PATIENCE_S):
        assert await process.wait() == 0
    assert termios.tcgetattr(terminal.theirs) == before
