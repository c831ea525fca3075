"""Loads TLS files that rotate under a running process: kubelet replaces a mounted Secret's files without a restart.

Each handshake uses the files of that moment; open connections keep what they began with. If the files cannot serve,
the previous ones stay, and the listener is called once with the problem, and once with None when they serve again.

Worked example: cert-manager writes a new tls.crt, and a client connects before tls.key has followed. The old pair
serves that handshake, and the listener gets "... KEY_VALUES_MISMATCH ...". The next client gets the new pair, and the
listener gets None.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

ProblemListener: TypeAlias = Callable[[str | None], None]  # a problem, or None once it is over
Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


class BadTlsFiles(ValueError):  # noqa: N818 - named after the side at fault
    """The files cannot serve: one is missing, is not PEM, or they do not belong together."""


@contextmanager
def naming(key: str) -> Iterator[None]:
    """Prefixes BadTlsFiles with this key of the configuration."""
    try:
        yield
    except BadTlsFiles as error:
        raise BadTlsFiles(f"{key}: {error}") from error


class TlsFiles(NamedTuple):
    """Paths of PEM files of a server. client_ca: if set, only clients with a certificate from it may connect (mTLS)."""

    certificate: str
    key: str
    client_ca: str | None = None


class ChangeFilter:
    """Passes a problem on to the listener when it changes. Begins with None."""

    def __init__(self, listener: ProblemListener) -> None:
        self._listener = listener
        self._problem: str | None = None

    def report(self, problem: str | None) -> None:
        if problem != self._problem:
            self._problem = problem
            self._listener(problem)


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Loads the certificate that the context shows. Paths of PEM files. Raises BadTlsFiles."""
    try:
        # Without a password OpenSSL would prompt for an encrypted key's on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:  # ssl.SSLError is one
        raise BadTlsFiles(f"{certificate}, {key}: {error}") from error


def load_authorities(context: ssl.SSLContext, authorities: str) -> None:
    """Trusts certificates of these authorities. Path of a PEM file. Raises BadTlsFiles."""
    try:
        context.load_verify_locations(authorities)
    except OSError as error:
        raise BadTlsFiles(f"{authorities}: {error}") from error


def stamp(files: Iterable[str]) -> Stamp | None:
    """Equal as long as the files are the same. None if one is missing."""
    try:
        found = [Path(file).stat() for file in files]
    except OSError:
        return None
    return tuple((each.st_mtime_ns, each.st_ino, each.st_size) for each in found)


class Rotating(ssl.SSLContext):
    """A context for a listener or a client that delegates each handshake to the newest context of `build`, which is
    called again when a file has changed. Raises BadTlsFiles.
    """

    def __init__(
        self, _protocol: int, files: Iterable[str], build: Callable[[], ssl.SSLContext], listener: ProblemListener
    ) -> None:
        self._files, self._build, self._problems = tuple(files), build, ChangeFilter(listener)
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
        """Loads the files if they changed, or `anyway`. If they cannot serve, the previous ones stay."""
        now = stamp(self._files)
        if not anyway and now is not None and now == self._stamp:
            return
        try:
            self._present = self._build()
        except BadTlsFiles as error:
            self._problems.report(str(error))
            return
        self._stamp = now
        self._problems.report(None)
