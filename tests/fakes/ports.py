"""Ports for servers that a test starts as processes, and that can say no port of their own."""

import os
import socket
from contextlib import suppress
from itertools import cycle

# Below those that a system gives to whoever asks for any (from 32768 on): nobody else draws one between our look at it
# and the server's. Workers of one run have a thousand each.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS = cycle(range(20_000 + 1000 * (_WORKER % 10), 21_000 + 1000 * (_WORKER % 10)))


def free_ports(count):
    """Ports that nobody listens on, each another one."""
    found = []
    for port in _PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("a cycle has no end")
