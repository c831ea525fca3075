"""Loads TLS files that rotate under a running process: kubelet replaces a mounted Secret's files without a restart.

Each handshake uses the files of that moment; open connections keep theirs. Files that cannot be loaded change nothing:
the previous ones stay, and `on_problem` is called once, and with None once the files can be loaded again.

Worked example: cert-manager writes a new tls.crt, and a client connects before tls.key has followed: the old pair
serves that handshake, and `on_problem("... KEY_VALUES_MISMATCH ...")` is called; the next client gets the new pair, and
`on_problem(None)` is called.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

Told: TypeAlias = Callable[[str | None], None]
Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


class BadTlsFiles(ValueError):  # noqa: N818 - named for whose fault it is
    """The files cannot serve: one is missing, is not PEM, or they do not belong together."""


@contextmanager
def naming(key: str) -> Iterator[None]:
    """What is wrong with files that this key of the configuration names, says so."""
    try:
        yield
    except BadTlsFiles as error:
        raise BadTlsFiles(f"{key}: {error}") from error


class Once:
    """Passes a problem on only if it changes. Begins without one."""

    def __init__(self, on_problem: Told) -> None:
        self._on_problem = on_problem
        self._problem: str | None = None

    def tell(self, problem: str | None) -> None:
        if problem != self._problem:
            self._problem = problem
            self._on_problem(problem)


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Show this certificate. Paths of PEM files. Raises BadTlsFiles."""
    try:
        # Without a password OpenSSL would ask for an encrypted key's on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:  # ssl.SSLError is one
        raise BadTlsFiles(f"{certificate}, {key}: {error}") from error


def load_authorities(context: ssl.SSLContext, authorities: str) -> None:
    """Believe certificates of these. Path of a PEM file. Raises BadTlsFiles."""
    try:
        context.load_verify_locations(authorities)
    except OSError as error:
        raise BadTlsFiles(f"{authorities}: {error}") from error


def stamp(files: Iterable[str]) -> Stamp | None:
    """Equal as long as the files are the same ones; None: one is not there."""
    try:
        found = [Path(file).stat() for file in files]
    except OSError:
        return None
    return tuple((each.st_mtime_ns, each.st_ino, each.st_size) for each in found)


class Rotating(ssl.SSLContext):
    """A context for a listener or a client. `build` returns the context of the next handshake; it is called again if
    a file has changed. Raises BadTlsFiles.
    """

    def __init__(
        self, _protocol: int, files: Iterable[str], build: Callable[[], ssl.SSLContext], on_problem: Told
    ) -> None:
        self._files, self._build, self._once = tuple(files), build, Once(on_problem)
        self._stamp = stamp(self._files)
        self._present = build()

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        self.renew()
        return self._present.wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def renew(self, *, anyway: bool = False) -> None:
        """Loads the files if they have changed, or if `anyway`. Files that cannot be loaded change nothing."""
        now = stamp(self._files)
        if not anyway and now is not None and now == self._stamp:
            return
        try:
            self._present = self._build()
        except BadTlsFiles as error:
            self._once.tell(str(error))
            return
        self._stamp = now
        self._once.tell(None)
