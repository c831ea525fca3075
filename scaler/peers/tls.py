"""Who may be a peer: a certificate of our own authority, for the one name that all replicas share.

The authority may sign for others as well (KEDA's client certificate comes from the same one), so being signed is not
enough on either side. Replicas call each other by address; the name they check is fixed, and in no DNS.

Worked example: with the name "tidegate.tidegate.svc", a client whose certificate is for "keda-operator" is turned away
by `is_peer`, and so is a server by the handshake.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..tls import Rotating, Told, load_authorities, load_pair


class TlsFiles(NamedTuple):
    """Paths of PEM files. ca: who signs for the replicas."""

    certificate: str
    key: str
    ca: str


def listening(files: TlsFiles, told: Told) -> Rotating:
    """For the listener. Raises BadTlsFiles."""
    return Rotating(ssl.PROTOCOL_TLS_SERVER, files, lambda: _made(ssl.PROTOCOL_TLS_SERVER, files), told)


def connecting(files: TlsFiles, told: Told) -> Rotating:
    """For asking. Raises BadTlsFiles."""
    return Rotating(ssl.PROTOCOL_TLS_CLIENT, files, lambda: _made(ssl.PROTOCOL_TLS_CLIENT, files), told)


def is_peer(certificate: Mapping[str, Any] | None, name: str) -> bool:
    """Is a verified certificate, as `ssl` tells of it, for this name? There are no wildcards among peers."""
    names = (certificate or {}).get("subjectAltName", ())
    return ("DNS", name) in names


def _made(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # both ends are ours
    load_pair(context, files.certificate, files.key)
    load_authorities(context, files.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    return context
