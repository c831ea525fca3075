"""The metrics API's TLS: a certificate that rotates, and the CA of those who may forward requests, which rotates too.

A client may come without a certificate: a person with a token does. One that shows a certificate of another CA is not
let in at all. Connections say what they were made with (`peer`).

Worked example: `rotating(files, told).trust(proxy)`, and from the next handshake on `peer(connection)` of whoever shows
the forwarder's certificate is `Peer("front-proxy-client", …)`; of a person with a token it is None.
"""

from __future__ import annotations

import ssl
from typing import Any, NamedTuple

from scaler.tls import BadTlsFiles, Rotating, Told, load_pair

from .auth import Authorities, BadFrontProxy, FrontProxy, Peer

__all__ = ["BadTlsFiles", "MetricsTlsFiles", "Serving", "peer", "rotating"]


class MetricsTlsFiles(NamedTuple):
    """Paths of PEM files."""

    certificate: str
    key: str


class _Handshake(ssl.SSLContext):
    """What handshakes are made with while nothing changes."""

    authorities: Authorities = frozenset()


class Serving(Rotating):
    """For the listener. Raises BadTlsFiles."""

    def __init__(self, protocol: int, files: MetricsTlsFiles, told: Told) -> None:
        self._proxy: FrontProxy | None = None
        super().__init__(protocol, files, lambda: _made(files, self._proxy), told)

    def trust(self, proxy: FrontProxy | None) -> None:
        """Who may forward requests from the next handshake on. Raises BadFrontProxy, and then nothing changes."""
        if proxy is not None:
            try:
                _believe(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), proxy.authorities)
            except ssl.SSLError as error:
                raise BadFrontProxy(f"requestheader-client-ca-file: {error}") from error
        self._proxy = proxy
        self.renew(anyway=True)


def rotating(files: MetricsTlsFiles, told: Told) -> Serving:
    """`told(problem)` is called when the files go bad, `told(None)` when they serve again. Raises BadTlsFiles."""
    return Serving(ssl.PROTOCOL_TLS_SERVER, files, told)


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


def _made(files: MetricsTlsFiles, proxy: FrontProxy | None) -> _Handshake:
    context = _Handshake(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_pair(context, files.certificate, files.key)
    if proxy is not None:
        _believe(context, proxy.authorities)
        context.authorities = proxy.authorities
    return context


def _believe(context: ssl.SSLContext, authorities: Authorities) -> None:
    """Clients that show a certificate show one of these."""
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=b"".join(sorted(authorities)))
