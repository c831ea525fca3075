"""The listener's TLS: a certificate that rotates, and the CA of those who may forward requests, which rotates too.

Each handshake is made with what the files and the authorities are at that moment; connections that stand keep what they
were made with, and say so (`peer`). A client may come without a certificate: a person with a token does. One that shows
a certificate of another CA is not let in at all. Files that cannot serve change nothing: the previous certificate
stays, and `told` hears about it once.

Worked example: cert-manager writes a new tls.crt, and a client connects before tls.key has followed: the old pair
serves that handshake, and `told("... KEY_VALUES_MISMATCH ...")` is called; the next client gets the new pair, and
`told(None)` is called.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .frontproxy import Authorities, BadFrontProxy, FrontProxy, Peer


class TlsFiles(NamedTuple):
    """Paths of PEM files."""

    certificate: str
    key: str


class BadTlsFiles(ValueError):  # noqa: N818 - named for whose fault it is
    """The files cannot serve: one is missing, is not PEM, or they do not belong together."""


class _Handshake(ssl.SSLContext):
    """What handshakes are made with while nothing changes."""

    authorities: Authorities = frozenset()


class Rotating(ssl.SSLContext):
    """For a listener; it makes no handshake itself. Raises BadTlsFiles."""

    def __init__(self, _protocol: int, files: TlsFiles, told: Callable[[str | None], None]) -> None:
        self._files, self._told = files, told
        self._problem: str | None = None
        self._proxy: FrontProxy | None = None
        self._stamp = _stamp(files)
        self._present = _made(files, None)

    def trust(self, proxy: FrontProxy | None) -> None:
        """Who may forward requests from the next handshake on. Raises BadFrontProxy, and then nothing changes."""
        if proxy is not None:
            try:
                _believe(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), proxy.authorities)
            except ssl.SSLError as error:
                raise BadFrontProxy(f"requestheader-client-ca-file: {error}") from error
        self._proxy = proxy
        self._stamp = None
        self._renew()

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        self._renew()
        return self._present.wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def _renew(self) -> None:
        """Take what there is now, if it is another and can serve."""
        stamp = _stamp(self._files)
        if stamp is not None and stamp == self._stamp:
            return
        try:
            self._present = _made(self._files, self._proxy)
        except BadTlsFiles as error:
            self._tell(str(error))
            return
        self._stamp = stamp
        self._tell(None)

    def _tell(self, problem: str | None) -> None:
        if problem != self._problem:
            self._problem = problem
            self._told(problem)


def rotating(files: TlsFiles, told: Callable[[str | None], None]) -> Rotating:
    """`told(problem)` is called when the files go bad, `told(None)` when they serve again. Raises BadTlsFiles."""
    return Rotating(ssl.PROTOCOL_TLS_SERVER, files, told)


def peer(connection: ssl.SSLObject) -> Peer | None:
    """Whose certificate a connection began with; None: it showed none."""
    certificate = connection.getpeercert()
    if not certificate or not isinstance(connection.context, _Handshake):
        return None
    subject: Any = certificate.get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    until = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    # Of several the last one counts, as in the API server's own library.
    return Peer(names[-1] if names else "", connection.context.authorities, until)


def _made(files: TlsFiles, proxy: FrontProxy | None) -> _Handshake:
    context = _Handshake(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password OpenSSL would ask for an encrypted key's on the terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
    except OSError as error:  # ssl.SSLError is one
        raise BadTlsFiles(f"{files.certificate}, {files.key}: {error}") from error
    if proxy is not None:
        _believe(context, proxy.authorities)
        context.authorities = proxy.authorities
    return context


def _believe(context: ssl.SSLContext, authorities: Authorities) -> None:
    """Clients that show a certificate show one of these."""
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=b"".join(sorted(authorities)))


def _stamp(files: TlsFiles) -> tuple[tuple[int, int, int], ...] | None:
    """Equal as long as the files are the same ones; None: one is not there."""
    try:
        found = [Path(file).stat() for file in files]
    except OSError:
        return None
    return tuple((each.st_mtime_ns, each.st_ino, each.st_size) for each in found)
