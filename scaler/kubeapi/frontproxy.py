"""The API server as a forwarder of requests: by which certificate it is known, and in which headers it says for whom.

The ConfigMap `kube-system/extension-apiserver-authentication` says all of it. A request's headers are believed only
with a client certificate that was verified against that CA and carries an allowed name; without one they are anybody's
words and mean nothing. Which certificate a connection showed, the TLS side says. Pure.

Worked example: with `requestheader-allowed-names: ["front-proxy-client"]`, headers `X-Remote-User: ann` and
`X-Remote-Group: dev` on a connection of CN `front-proxy-client` are `User("ann", groups=("dev",))`.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote

from exporter.cluster.reviews import User

CONFIG_MAP = ("kube-system", "extension-apiserver-authentication")

Authorities: TypeAlias = frozenset[bytes]  # certificates of CAs, as DER
Headers: TypeAlias = Iterable[tuple[str, str]]

# Base64 has no "-", so that a block without an end is not searched up to the end of the text.
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----([^-]*)(-----END CERTIFICATE-----)?")


class BadFrontProxy(ValueError):  # noqa: N818 - named for whose fault it is
    """The ConfigMap does not say whom to believe; names the key."""


class Peer(NamedTuple):
    """A client's certificate, verified as its connection began.

    name:        its subject's common name.
    authorities: those that were trusted then.
    until:       POSIX seconds when it expires.
    """

    name: str
    authorities: Authorities
    until: float


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """authorities: that sign the forwarder's certificates. names: allowed ones; none allows all. The rest: headers."""

    authorities: Authorities
    names: tuple[str, ...]
    users: tuple[str, ...]
    uids: tuple[str, ...]
    groups: tuple[str, ...]
    extras: tuple[str, ...]

    def distrust(self, peer: Peer, now: float) -> str | None:
        """Why this certificate is none of the forwarder's (any more); None: it is."""
        # What was verified against a part of today's authorities is verified against today's.
        if not peer.authorities <= self.authorities:
            return "the CA of its certificate may have been replaced since it connected; connect again"
        if now >= peer.until:
            return "its certificate has expired"
        if self.names and peer.name not in self.names:
            return "its certificate's common name is not one of requestheader-allowed-names"
        return None

    def user(self, headers: Headers) -> User | None:
        """For whom a request is forwarded; None: it does not say."""
        said: dict[str, list[str]] = {}
        for name, value in headers:
            said.setdefault(name.lower(), []).append(value)
        forwarded = _first(said, self.users)
        if forwarded is None:
            return None
        return User(forwarded, _first(said, self.uids) or "", _all(said, self.groups), _extra(said, self.extras))


def front_proxy(data: Mapping[str, str]) -> FrontProxy | None:
    """What the ConfigMap says; None: this API server forwards nothing. Raises BadFrontProxy."""
    pem = data.get("requestheader-client-ca-file", "")
    if not pem.strip():
        return None
    return FrontProxy(
        _authorities(pem),
        _names(data, "allowed-names"),
        _names(data, "username-headers"),
        _names(data, "uid-headers"),
        _names(data, "group-headers"),
        _names(data, "extra-headers-prefix"),
    )


def _authorities(pem: str) -> Authorities:
    blocks = _CERTIFICATE.findall(pem)
    if not all(end for _, end in blocks):
        raise BadFrontProxy("requestheader-client-ca-file: must be PEM: a certificate has no end")
    try:
        found = frozenset(b64decode("".join(block.split()), validate=True) for block, _ in blocks)
    except NotBase64 as error:
        raise BadFrontProxy(f"requestheader-client-ca-file: must be PEM: {error}") from error
    if not found:
        raise BadFrontProxy("requestheader-client-ca-file: must be PEM with at least one certificate")
    return found


def _names(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    """A key that may be missing, as before Kubernetes 1.34 the one of uids is."""
    try:
        names = json.loads(data.get(f"requestheader-{key}") or "[]")
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadFrontProxy(f"requestheader-{key}: must be a JSON list of strings")
    return tuple(names)


def _first(said: Mapping[str, list[str]], headers: Iterable[str]) -> str | None:
    return next((value for value in _all(said, headers) if value), None)


def _all(said: Mapping[str, list[str]], headers: Iterable[str]) -> tuple[str, ...]:
    return tuple(value for header in headers for value in said.get(header.lower(), ()))


def _extra(said: Mapping[str, list[str]], prefixes: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The rest of a header's name is a key, percent-encoded where a header may not hold it."""
    found = {
        unquote(header[len(prefix) :]): tuple(values)
        for prefix in prefixes
        for header, values in said.items()
        if header.startswith(prefix.lower())
    }
    return tuple(sorted(found.items()))
