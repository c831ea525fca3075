"""Which replica this process is, and where the others ask it.

The pod's name and address come from its environment (Kubernetes' downward API), else from the machine. The process has
a name of its own, because a container that starts again in the same pod remembers nothing of what it led.

Worked example: with POD_NAME=tidegate-7d4-x2x and POD_IP=10.0.0.7 and a listener on 0.0.0.0:8444 it is
`Myself("tidegate-7d4-x2x_5f3a9c1e", "10.0.0.7:8444")`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import NamedTuple
from uuid import uuid4

_EVERYWHERE = {"", "0.0.0.0", "::"}  # noqa: S104  compared, not bound


class Myself(NamedTuple):
    """identity: as the Lease's holder. address: HOST:PORT."""

    identity: str
    address: str


def myself(environment: Mapping[str, str], host: str, port: int) -> Myself:
    """host, port: where the listener is."""
    name = called(environment)
    if host in _EVERYWHERE:
        host = environment.get("POD_IP") or _own_address()
    bracketed = f"[{host}]" if ":" in host else host
    return Myself(f"{name}_{uuid4().hex[:8]}", f"{bracketed}:{port}")


def called(environment: Mapping[str, str]) -> str:
    """The pod's name, else the machine's."""
    return environment.get("POD_NAME") or socket.gethostname()


def _own_address() -> str:
    """A pod's name and address are in its /etc/hosts."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
