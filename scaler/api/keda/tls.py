"""Rotates certificates under gRPC's server, which does not use Python's SSL contexts.

gRPC calls `Rotation.fetch` before every handshake, on a thread of its own. `scaler.tls` says how files rotate.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

import grpc

from scaler.tls import BadTlsFiles, ChangeFilter, ProblemListener, TlsFiles, load_authorities, load_pair


class Pems(NamedTuple):
    certificate: bytes
    key: bytes
    client_ca: bytes | None


def load(files: TlsFiles) -> Pems:
    """Reads and checks all files. Raises BadTlsFiles."""
    try:
        pems = _read(files)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(context, files.certificate, files.key)
        if files.client_ca is not None:
            load_authorities(context, files.client_ca)
        again = _read(files)
    except OSError as error:
        raise BadTlsFiles(f"{', '.join(filter(None, files))}: {error}") from error
    # OpenSSL checks files, not bytes: it checked these bytes only if nothing changed in between.
    if again != pems:
        raise BadTlsFiles(f"{', '.join(filter(None, files))}: changed while being read")
    return pems


class Rotation:
    """The certificate in use, and its replacement. Safe in any thread: each result is complete, and two threads that
    find the same change both return it. Raises BadTlsFiles.
    """

    def __init__(self, files: TlsFiles, listener: ProblemListener) -> None:
        self._files = files
        self._problems = ChangeFilter(listener)
        self._pems = load(files)

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._pems),
            self.fetch,  # type: ignore[arg-type]  # the stub does not know that None is "no change"
            require_client_authentication=self._files.client_ca is not None,
        )

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Returns the credentials to serve from now on, or None if nothing changed."""
        try:
            pems = load(self._files)
        except BadTlsFiles as error:
            self._problems.report(str(error))
            return None
        changed = pems != self._pems
        self._pems = pems
        self._problems.report(None)
        return _configuration(pems) if changed else None


def _configuration(pems: Pems) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pems.key, pems.certificate)], pems.client_ca)


def _read(files: TlsFiles) -> Pems:
    client_ca = Path(files.client_ca).read_bytes() if files.client_ca is not None else None
    return Pems(Path(files.certificate).read_bytes(), Path(files.key).read_bytes(), client_ca)
