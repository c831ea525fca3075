"""TLS files that rotate under a running process: kubelet replaces a mounted Secret's files, nobody restarts.

Each handshake is made with what the files are at that moment; connections that stand keep what they were made with.
Files that cannot serve change nothing: what was there before stays, and `told` hears of it once, and None once they
serve again.

Worked example: cert-manager writes a new tls.crt, and a client connects before tls.key has followed: the old pair
serves that handshake, and `told("... KEY_VALUES_MISMATCH ...")` is called; the next client gets the new pair, and
`told(None)` is called.
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
    """Passes on what changes, and nothing twice. It begins with nothing to tell."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._problem: str | None = None

    def tell(self, problem: str | None) -> None:
        if problem != self._problem:
            self._problem = problem
            self._told(problem)


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
    """For a listener, or for connecting. It makes no handshake itself; `made` says with what the next one is made, and
    is asked again when one of the files is another. Raises BadTlsFiles.
    """

    def __init__(self, _protocol: int, files: Iterable[str], made: Callable[[], ssl.SSLContext], told: Told) -> None:
        self._files, self._made, self._once = tuple(files), made, Once(told)
        self._stamp = stamp(self._files)
        self._present = made()

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
        """Take what there is now, if it can serve, and the files are others or it is asked for `anyway`."""
        now = stamp(self._files)
        if not anyway and now is not None and now == self._stamp:
            return
        try:
            self._present = self._made()
        except BadTlsFiles as error:
            self._once.tell(str(error))
            return
        self._stamp = now
        self._once.tell(None)
