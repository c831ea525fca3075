"""The machine that Tidegate runs on: Python, the kernels' cache, who else owns its packages, and its ports.

Worked example: `port("listen.http", "0.0.0.0", 8080, ours=False)` binds that and lets go of it again; one that cannot
be bound is a failure that says why.
"""

from __future__ import annotations

import errno
import platform
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import packages_distributions, version
from pathlib import Path
from tempfile import TemporaryFile

from scaler.config import Config

from .check import Check, fail, ok, warn

OLDEST, FIRST_UNTRIED = (3, 11), (3, 14)  # requires-python
PACKAGES = ("exporter", "scaler")


def python(numbers: Sequence[int] = sys.version_info[:2]) -> Check:
    said = f"Tidegate {version('tidegate')} on Python {platform.python_version()}"
    if tuple(numbers) < OLDEST or tuple(numbers) >= FIRST_UNTRIED:
        return fail("Python", said, "run Tidegate with Python 3.11, 3.12 or 3.13: the kernels' compiler knows no other")
    return ok("Python", said)


def kernels_cache(environment: Mapping[str, str], candidates: Iterable[Path] | None = None) -> Check:
    """Where numba keeps compiled kernels: in NUMBA_CACHE_DIR alone where that is set, else beside the source, else in
    the user's own cache (numba.core.caching, its locators).
    """
    said_by = environment.get("NUMBA_CACHE_DIR")
    if candidates is None:
        home = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/")) / ".cache")
        candidates = [Path(__file__).parents[1] / "kernels" / "__pycache__", home / "numba"]
    places = [Path(said_by)] if said_by else list(candidates)
    writable = next((place for place in places if _writable(place)), None)
    if writable is not None:
        return ok("kernels' cache", f"{writable} can be written")
    tried = ", ".join(map(str, places))
    do = "set NUMBA_CACHE_DIR to a directory that can be written: without one each start compiles for half a minute"
    return warn("kernels' cache", f"{tried}: cannot be written", do)


def names(owners: Mapping[str, Sequence[str]] | None = None) -> list[Check]:
    """owners: distributions by the package they install."""
    found = packages_distributions() if owners is None else owners
    checks = []
    for package in PACKAGES:
        others = sorted(set(found.get(package, ())) - {"tidegate"})
        name = f"package {package}"
        if others:
            do = f"install Tidegate into an environment of its own, or remove {', '.join(others)}: which of them is "
            checks.append(fail(name, f"also installed by {', '.join(others)}", do + "imported is chance"))
        else:
            checks.append(ok(name, "Tidegate's own"))
    return checks


def listeners(config: Config) -> dict[str, tuple[str, int]]:
    """Where it listens, by key; ports that are any free one are left out."""
    listen = config.listen
    found = {"listen.http": listen.http, "listen.grpc": listen.grpc}
    if listen.metrics_api is not None:
        found["listen.metrics_api"] = listen.metrics_api.address
    if listen.peers is not None:
        found["listen.peers"] = listen.peers.address
    return {key: (address.host, address.port) for key, address in found.items() if address.port}


def port(key: str, host: str, number: int, *, ours: bool) -> Check:
    """ours: a Tidegate runs here, and it is no wonder that its ports are taken."""
    name = f"{key} {host}:{number}"
    problem = _cannot_bind(host, number)
    if problem is None:
        return ok(name, "free; no Tidegate runs here")
    if problem == errno.EADDRINUSE and ours:
        return ok(name, "taken, by the Tidegate that runs here")
    if problem == errno.EADDRINUSE:
        return fail(name, "taken by another program", f"stop that program, or change {key}: a port is never shared")
    words = errno.errorcode.get(problem, str(problem))
    return fail(name, f"cannot be bound: {words}", f"change {key} to an address of this machine, and a port above 1023")


def _cannot_bind(host: str, number: int) -> int | None:
    """The errno of it; None: it can be."""
    try:
        found = socket.getaddrinfo(host.strip("[]") or None, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except socket.gaierror:
        return errno.EADDRNOTAVAIL
    except OSError as error:
        return error.errno or errno.EADDRNOTAVAIL
    return None


def _writable(place: Path) -> bool:
    try:
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=place):
            return True
    except OSError:
        return False
