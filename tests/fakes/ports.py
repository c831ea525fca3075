"""Ports for servers that a test starts as processes and that cannot report their port."""

import os
import socket
from contextlib import suppress
from itertools import cycle

# Below the ephemeral ports (from 32768 on): the system assigns none of these between this probe and the server's bind.
# Each worker of a test run has a thousand ports.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS = cycle(range(20_000 + 1000 * (_WORKER % 10), 21_000 + 1000 * (_WORKER % 10)))


def free_ports(count):
    """Ports on which no server listens, all different."""
    found = []
    for port in _PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("a cycle has no end")
