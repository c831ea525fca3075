"""Runs the command as a shell does: a process, its exit status, its output."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from tempfile import TemporaryFile
from typing import NamedTuple

import pytest
from aiohttp import web

from tests.fakes.warm import WarmProcess

GOOD = """
workloads:
  - {namespace: ai, name: chat, engine: vllm, pods: {url: "http://127.0.0.1:1/metrics"}, replicas: {min: 1}}
"""


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def tidegate():
    """`tidegate("read", "-", stdin=b"…")`: returncode, stdout, stderr, as text."""

    def run(*arguments, stdin=b"", timeout=120):
        with TemporaryFile() as standard_input, TemporaryFile() as standard_output, TemporaryFile() as standard_error:
            standard_input.write(stdin)
            standard_input.seek(0)
            process = WarmProcess(
                "scaler", *arguments, stdin=standard_input, stdout=standard_output, stderr=standard_error
            )
            try:
                process.wait(timeout)
            finally:
                process.kill()
            for stream in (standard_output, standard_error):
                stream.seek(0)
            return Done(process.returncode, standard_output.read().decode(), standard_error.read().decode())

    return run


@pytest.fixture
def config(tmp_path):
    """`config(text)`: path of a file with this text; a valid configuration by default."""

    def write(text=GOOD, name="config.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def serve():
    """`url = serve(handler)`: an aiohttp handler on a loopback address, run in a separate thread."""
    stops = []

    def start(handler):
        loop, ready, address = asyncio.new_event_loop(), threading.Event(), []

        async def begin():
            app = web.Application()
            app.router.add_get("/metrics", handler)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            address.append(runner.addresses[0][1])
            return runner

        def serve():
            runner = loop.run_until_complete(begin())
            ready.set()
            loop.run_forever()
            loop.run_until_complete(runner.cleanup())
            loop.close()

        thread = threading.Thread(target=serve)
        thread.start()
        ready.wait()
        stops.append((loop, thread))
        return f"http://127.0.0.1:{address[0]}/metrics"

    yield start
    for loop, thread in stops:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@pytest.fixture
def raw():
    """`url = raw(answer)`: a loopback server that sends each client these bytes, and then `more` again and again."""
    stops = []

    def start(answer, more=b""):
        listening, stop = socket.create_server(("127.0.0.1", 0)), threading.Event()

        def serve():
            with listening:
                while not stop.is_set():
                    connection, _ = listening.accept()
                    with connection, suppress(OSError):
                        connection.recv(1 << 16)
                        connection.sendall(answer)
                        while more and not stop.wait(0.02):
                            connection.sendall(more)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        stops.append((stop, port, thread))
        return f"http://127.0.0.1:{port}/metrics"

    yield start
    for stop, port, thread in stops:
        stop.set()
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
        thread.join()
