"""Certificates that rotate under gRPC's server, which has a way of its own for that.

gRPC asks `Rotation.fetch` before every handshake, on a thread of its own; connections that stand keep what they were
made with. Files that cannot be read or do not belong together change nothing: the previous certificate stays, and
`told` hears about it once.

Worked example: cert-manager writes a new tls.crt, and a client connects before tls.key has followed. The pair does
not match, so the old pair serves that handshake and `told("…KEY_VALUES_MISMATCH…")` is called; with the next client
both are new, they serve it, and `told(None)` is called.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import grpc

from scaler.tls import BadTlsFiles, Once, Told, load_authorities, load_pair

__all__ = ["BadTlsFiles", "GrpcTlsFiles", "Pems", "Rotation", "load"]


@dataclass(frozen=True, slots=True)
class GrpcTlsFiles:
    """Paths of PEM files. With `client_ca`, only clients with a certificate from it are let in (mTLS)."""

    certificate: str
    key: str
    client_ca: str | None = None


class Pems(NamedTuple):
    certificate: bytes
    key: bytes
    client_ca: bytes | None


def load(files: GrpcTlsFiles) -> Pems:
    """Read and check all files. Raises BadTlsFiles."""
    try:
        pems = _read(files)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(context, files.certificate, files.key)
        if files.client_ca is not None:
            load_authorities(context, files.client_ca)
        again = _read(files)
    except OSError as error:
        raise BadTlsFiles(f"{', '.join(_paths(files))}: {error}") from error
    # OpenSSL checks files, not bytes: what it checked is what was read only if nothing moved in between.
    if again != pems:
        raise BadTlsFiles(f"{', '.join(_paths(files))}: changed while being read")
    return pems


class Rotation:
    """The certificate in use, and whether the files offer another. Safe to ask from any thread: each answer stands
    alone, and two threads that see one change both answer with it.
    """

    def __init__(self, files: GrpcTlsFiles, told: Told) -> None:
        """`told(problem)` is called when the files go bad, `told(None)` when they serve again. Raises BadTlsFiles."""
        self._files = files
        self._once = Once(told)
        self._pems = load(files)

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._pems),
            self.fetch,  # type: ignore[arg-type]  # the stub does not know that None is "no change"
            require_client_authentication=self._files.client_ca is not None,
        )

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """What to serve from now on; None for no change."""
        try:
            pems = load(self._files)
        except BadTlsFiles as error:
            self._once.tell(str(error))
            return None
        changed = pems != self._pems
        self._pems = pems
        self._once.tell(None)
        return _configuration(pems) if changed else None


def _configuration(pems: Pems) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pems.key, pems.certificate)], pems.client_ca)


def _read(files: GrpcTlsFiles) -> Pems:
    client_ca = Path(files.client_ca).read_bytes() if files.client_ca is not None else None
    return Pems(Path(files.certificate).read_bytes(), Path(files.key).read_bytes(), client_ca)


def _paths(files: GrpcTlsFiles) -> list[str]:
    return [path for path in (files.certificate, files.key, files.client_ca) if path is not None]
