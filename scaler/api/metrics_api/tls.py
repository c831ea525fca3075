"""Rotates the TLS context of the metrics API: its certificate, and the CA of the front proxy.

A client may have no certificate: a person with a token has none. A certificate of another CA fails the handshake.

Worked example: after `rotating(files, listener).trust(proxy)`, `peer(connection)` of a new connection with the front
proxy's certificate is `Peer("front-proxy-client", …)`, and None for a person with a token.
"""

from __future__ import annotations

import ssl
from typing import Any

from scaler.tls import ProblemListener, Rotating, TlsFiles, load_pair

from .auth import Authorities, BadFrontProxy, FrontProxy, Peer


class _Handshake(ssl.SSLContext):
    """The context of handshakes until something changes."""

    authorities: Authorities = frozenset()


class ListenerContext(Rotating):
    """The context of the listener. Raises BadTlsFiles."""

    def __init__(self, protocol: int, files: TlsFiles, listener: ProblemListener) -> None:
        self._proxy: FrontProxy | None = None
        super().__init__(protocol, (files.certificate, files.key), lambda: _built(files, self._proxy), listener)

    def trust(self, proxy: FrontProxy | None) -> None:
        """Sets the front proxy from the next handshake on. If it raises BadFrontProxy, nothing changes."""
        if proxy is not None:
            try:
                _verify_clients(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), proxy.authorities)
            except ssl.SSLError as error:
                raise BadFrontProxy(f"requestheader-client-ca-file: {error}") from error
        self._proxy = proxy
        self.renew(anyway=True)


def rotating(files: TlsFiles, listener: ProblemListener) -> ListenerContext:
    """Raises BadTlsFiles."""
    return ListenerContext(ssl.PROTOCOL_TLS_SERVER, files, listener)


def peer(connection: ssl.SSLObject) -> Peer | None:
    """The client certificate of a connection; None if it has none."""
    certificate = connection.getpeercert()
    if not certificate or not isinstance(connection.context, _Handshake):
        return None
    subject: Any = certificate.get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    until = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    # The last of several counts, as in the API server's library.
    return Peer(names[-1] if names else "", connection.context.authorities, until)


def _built(files: TlsFiles, proxy: FrontProxy | None) -> _Handshake:
    context = _Handshake(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_pair(context, files.certificate, files.key)
    if proxy is not None:
        _verify_clients(context, proxy.authorities)
        context.authorities = proxy.authorities
    return context


def _verify_clients(context: ssl.SSLContext, authorities: Authorities) -> None:
    """Verifies client certificates, which are optional, against these authorities."""
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=b"".join(sorted(authorities)))
