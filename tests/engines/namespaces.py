"""Programs that bind all interfaces run in a network namespace that has only loopback; `relay` leads to their ports.

A network namespace belongs to a thread, and a socket to the one in which it was made. So listeners are opened here, and
then a thread of their own enters the namespace: it accepts connections here and makes them there.

Worked example: `with isolated(["python", "-m", "http.server", "8080"]) as process, relay(process, [8080]): ...` serves
127.0.0.1:8080 on this machine, and no other host can reach the server.
"""

import asyncio
import ctypes
import os
import shutil
import socket
import subprocess
import threading
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial

import pytest

_CLONE_NEWNET = 0x40000000  # linux/sched.h
# In a PID namespace all processes of a program end with its first one.
_UNSHARE = ("unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "--")
_LOOPBACK = ("sh", "-c", 'ip link set lo up && exec "$@"', "sh")


def require_namespaces():
    """Skips the test, which is then listed at the end of the run, where this user cannot create a namespace."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("unshare and ip are not installed (Debian: apt install util-linux iproute2)")
    tried = subprocess.run([*_UNSHARE, *_LOOPBACK, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no network namespace can be created here (needs root): {tried.stderr.strip()}")


@contextmanager
def isolated(command, **options):
    """A Popen of this program in its own namespaces, until the block ends."""
    with subprocess.Popen([*_UNSHARE, *_LOOPBACK, *command], **options) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def relay(process, ports):
    """127.0.0.1 here leads to 127.0.0.1 of the program at each of these ports, until the block ends.

    Where the program does not listen, a connection is closed at once.
    """
    listeners = {port: socket.create_server(("127.0.0.1", port)) for port in ports}
    ended = threading.Event()
    thread = threading.Thread(target=_relay, args=(process.pid, listeners, ended), name="relay")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _relay(pid, listeners, ended):
    _enter(pid)
    asyncio.run(_serve(listeners, ended))


async def _serve(listeners, ended):
    with ExitStack() as stack:
        for port, listener in listeners.items():
            server = await asyncio.start_server(partial(_forward, port), sock=listener)
            stack.callback(server.close)
        await asyncio.to_thread(ended.wait)


def _enter(pid):
    """Moves this thread into a process' network namespace."""
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(namespace)


async def _forward(port, reader, writer):
    with closing(writer), suppress(ConnectionError, asyncio.CancelledError):
        its_reader, its_writer = await asyncio.open_connection("127.0.0.1", port)
        with closing(its_writer):
            await asyncio.gather(_copy(reader, its_writer), _copy(its_reader, writer))


async def _copy(reader, writer):
    while received := await reader.read(1 << 16):
        writer.write(received)
        await writer.drain()
    writer.close()
