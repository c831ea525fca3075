"""Checks this machine: Python, the cache of compiled kernels, the import packages, the ports.

Worked example: `check_port("listen.http", "0.0.0.0", 8080, daemon_runs=False)` binds the port and releases it; if that
fails, the check says why.
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


def check_python(version_info: Sequence[int] = sys.version_info[:2]) -> Check:
    result = f"Tidegate {version('tidegate')} on Python {platform.python_version()}"
    if not OLDEST <= tuple(version_info) < FIRST_UNTRIED:
        return fail("Python", result, "use Python 3.11, 3.12 or 3.13, which the compiler of the kernels supports")
    return ok("Python", result)


def check_kernel_cache(environment: Mapping[str, str], candidates: Iterable[Path] | None = None) -> Check:
    """Numba stores compiled kernels in NUMBA_CACHE_DIR if set, else beside their source, else in the user's cache
    (numba.core.caching, its locators).
    """
    name, configured = "kernel cache", environment.get("NUMBA_CACHE_DIR")
    if candidates is None:
        home = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/")) / ".cache")
        candidates = [Path(__file__).parents[2] / "policy" / "__pycache__", home / "numba"]
    directories = [Path(configured)] if configured else list(candidates)
    writable = next((directory for directory in directories if _is_writable(directory)), None)
    if writable is not None:
        return ok(name, f"{writable} is writable")
    remedy = "set NUMBA_CACHE_DIR to a writable directory: without one, each start compiles for half a minute"
    return warn(name, f"{', '.join(map(str, directories))}: not writable", remedy)


def check_packages(owners: Mapping[str, Sequence[str]] | None = None) -> list[Check]:
    """owners: distributions by the import package that they install."""
    found = packages_distributions() if owners is None else owners
    checks = []
    for package in PACKAGES:
        conflicting = ", ".join(sorted(set(found.get(package, ())) - {"tidegate"}))
        name = f"package {package}"
        if conflicting:
            remedy = f"install Tidegate into its own environment, or remove {conflicting}: either may be imported"
            checks.append(fail(name, f"also installed by {conflicting}", remedy))
        else:
            checks.append(ok(name, "installed by Tidegate only"))
    return checks


def listeners(config: Config) -> dict[str, tuple[str, int]]:
    """(host, port) of each listener by its key; without those that use any free port."""
    listen = config.listen
    addresses = {"listen.http": listen.http, "listen.grpc": listen.grpc}
    if listen.metrics_api is not None:
        addresses["listen.metrics_api"] = listen.metrics_api.address
    if listen.peers is not None:
        addresses["listen.peers"] = listen.peers.address
    return {key: (address.host, address.port) for key, address in addresses.items() if address.port}


def check_port(key: str, host: str, port: int, *, daemon_runs: bool) -> Check:
    """daemon_runs: a daemon with this configuration runs on this machine, so its ports are in use."""
    name = f"{key} {host}:{port}"
    problem = _bind_errno(host, port)
    if problem is None:
        return ok(name, "free; no daemon runs here")
    if problem == errno.EADDRINUSE and daemon_runs:
        return ok(name, "in use by the running daemon")
    if problem == errno.EADDRINUSE:
        return fail(name, "in use by another program", f"stop that program, or change {key}")
    code = errno.errorcode.get(problem, str(problem))
    return fail(name, f"cannot be bound: {code}", f"change {key} to an address of this machine and a port above 1023")


def _bind_errno(host: str, port: int) -> int | None:
    """The errno of a failed bind. Returns None if it succeeds."""
    try:
        found = socket.getaddrinfo(host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror:
        return errno.EADDRNOTAVAIL
    except OSError as error:
        return error.errno or errno.EADDRNOTAVAIL
    return None


def _is_writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=directory):
            return True
    except OSError:
        return False
