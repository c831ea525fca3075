"""Authenticates and authorizes callers of the metrics API: the front proxy, else a token; then RBAC.

A request that the API server forwards carries its user in headers. They count only on a connection with a
client certificate that is of the front proxy's CA and has an allowed name; the ConfigMap
`kube-system/extension-apiserver-authentication` has both. Any other caller shows a bearer token, which a TokenReview
resolves. A SubjectAccessReview decides what a user may read; members of `system:masters` may read everything, as
everywhere in Kubernetes. Both results are cached for 10 s. While the API server is unreachable, the call gets 503.

Worked example: `await gate.user(peer, headers)` of a connection without a certificate and with `X-Remote-User: ann`
raises ApiError 401. With `requestheader-allowed-names: ["front-proxy-client"]`, headers `X-Remote-User: ann` and
`X-Remote-Group: dev` on a connection of CN `front-proxy-client` are `User("ann", groups=("dev",))`.
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote

from exporter.kubernetes.auth import AccessRequest, AccessVerdict, Reviews, User
from exporter.kubernetes.protocol import ApiFailure
from scaler.config.errors import shown

from .errors import ApiError

V = TypeVar("V")

MASTERS = "system:masters"
_TOKEN = re.compile(r"[!-~]+")
CONFIG_MAP = ("kube-system", "extension-apiserver-authentication")
Authorities: TypeAlias = frozenset[bytes]  # certificates of CAs, as DER
Headers: TypeAlias = Iterable[tuple[str, str]]
# Base64 has no "-": a block without an end is not searched to the end of the text.
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----([^-]*)(-----END CERTIFICATE-----)?")
K = TypeVar("K", bound=Hashable)
# As Kubernetes' own delegating servers: the time until a revoked right ends.
CACHED_S = 10.0
CACHED = 4096  # entries, of positive and of negative results each
AT_ONCE = 64


class Gate:
    """Authenticates and authorizes. front_proxy, reviews: None until read; until then that way is closed."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.front_proxy: FrontProxy | None = None
        self.reviews: Reviews | None = None
        self._now = now
        # By the token's hash, because a token is a secret.
        self._tokens: ReviewCache[bytes, User | None] = ReviewCache(lambda user: user is not None, now)
        self._accesses: ReviewCache[tuple[User, AccessRequest], AccessVerdict] = ReviewCache(
            lambda verdict: verdict.allowed, now
        )

    async def user(self, peer: Peer | None, headers: Headers) -> User:
        """Raises ApiError: 401, 429 or 503."""
        pairs = list(headers)
        if peer is not None and self.front_proxy is not None:
            if (why := self.front_proxy.distrust(peer, self._now())) is not None:
                raise ApiError(HTTPStatus.UNAUTHORIZED, f"client certificate of {shown(peer.name)}: {why}")
            if (user := self.front_proxy.user(pairs)) is not None:
                return user
        token = _bearer(pairs)
        if token is None:
            message = "no credentials: neither the front proxy's certificate nor a bearer token"
            raise ApiError(HTTPStatus.UNAUTHORIZED, message)
        return await self._token_user(token)

    async def check(self, user: User, access: AccessRequest) -> None:
        """Raises ApiError: 403, 429 or 503."""
        if MASTERS in user.groups:
            return
        verdict = await _answered(
            self._accesses.get((user, access), lambda: self._connected().access_review(user, access))
        )
        if not verdict.allowed:
            raise ApiError(HTTPStatus.FORBIDDEN, _denied(user, access, verdict))

    async def stop(self) -> None:
        await self._tokens.stop()
        await self._accesses.stop()

    async def _token_user(self, token: str) -> User:
        hashed = sha256(token.encode()).digest()
        user = await _answered(self._tokens.get(hashed, lambda: self._connected().token_review(token)))
        if user is None:
            raise ApiError(HTTPStatus.UNAUTHORIZED, "bearer token: invalid or expired")
        return user

    def _connected(self) -> Reviews:
        if self.reviews is None:
            raise ApiFailure(None, "there is no connection to it yet")
        return self.reviews


async def _answered(answer: Awaitable[V]) -> V:
    try:
        return await answer
    except TooManyReviews:
        message = "too many reviews in progress at the API server; retry in a moment"
        raise ApiError(HTTPStatus.TOO_MANY_REQUESTS, message) from None
    except ApiFailure as failed:
        message = f"the API server did not authenticate or authorize the caller: {failed.detail}"
        raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, message) from failed


def _bearer(headers: Headers) -> str | None:
    """The token of the first Authorization header. Raises ApiError."""
    header = next((value for name, value in headers if name.lower() == "authorization"), "")
    scheme, _, token = header.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return None
    if not _TOKEN.fullmatch(token.strip()):
        message = "Authorization: a bearer token must be printable ASCII without spaces (RFC 6750)"
        raise ApiError(HTTPStatus.UNAUTHORIZED, message)
    return token.strip()


def _denied(user: User, access: AccessRequest, verdict: AccessVerdict) -> str:
    """In the form of the API server, with a remedy."""
    resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    because = f": {verdict.reason}" if verdict.reason else ""
    return (
        f"User {user.name!a} cannot {access.verb} resource {resource} in API group {access.group} in namespace "
        f"{shown(access.namespace)}{because}. Bind it to a role with these rules; HPAs read as "
        f"system:serviceaccount:kube-system:horizontal-pod-autoscaler"
    )


class BadFrontProxy(ValueError):  # noqa: N818 - named after the side at fault
    """The ConfigMap is invalid; the message names the key."""


class Peer(NamedTuple):
    """A client certificate, verified at the handshake.

    name:        common name of its subject.
    authorities: those that the handshake trusted.
    until:       POSIX seconds when it expires.
    """

    name: str
    authorities: Authorities
    until: float


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """authorities: that sign its certificates. names: allowed ones; none allows all. The rest: names of headers."""

    authorities: Authorities
    names: tuple[str, ...]
    users: tuple[str, ...]
    uids: tuple[str, ...]
    groups: tuple[str, ...]
    extras: tuple[str, ...]

    def distrust(self, peer: Peer, now: float) -> str | None:
        """Why this certificate is not valid for the front proxy (any more); None if it is."""
        # A handshake that trusted a subset of the current authorities is still valid.
        if not peer.authorities <= self.authorities:
            return "the CA of its certificate may have been replaced since it connected; connect again"
        if now >= peer.until:
            return "its certificate has expired"
        if self.names and peer.name not in self.names:
            return "its certificate's common name is not one of requestheader-allowed-names"
        return None

    def user(self, headers: Headers) -> User | None:
        """The user of a forwarded request; None if the headers have none."""
        values: dict[str, list[str]] = {}
        for name, value in headers:
            values.setdefault(name.lower(), []).append(value)
        forwarded = _first(values, self.users)
        if forwarded is None:
            return None
        return User(forwarded, _first(values, self.uids) or "", _all(values, self.groups), _extra(values, self.extras))


def front_proxy(data: Mapping[str, str]) -> FrontProxy | None:
    """Parses the ConfigMap. None if this API server forwards nothing. Raises BadFrontProxy."""
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
    """The list of a key, which may be missing: before Kubernetes 1.34 that of uids is."""
    try:
        names = json.loads(data.get(f"requestheader-{key}") or "[]")
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadFrontProxy(f"requestheader-{key}: must be a JSON list of strings")
    return tuple(names)


def _first(values: Mapping[str, list[str]], headers: Iterable[str]) -> str | None:
    return next((value for value in _all(values, headers) if value), None)


def _all(values: Mapping[str, list[str]], headers: Iterable[str]) -> tuple[str, ...]:
    return tuple(value for header in headers for value in values.get(header.lower(), ()))


def _extra(values: Mapping[str, list[str]], prefixes: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The rest of the header name is the key, percent-encoded where a header cannot have it."""
    found = {
        unquote(header[len(prefix) :]): tuple(each)
        for prefix in prefixes
        for header, each in values.items()
        if header.startswith(prefix.lower())
    }
    return tuple(sorted(found.items()))


class TooManyReviews(Exception):  # noqa: N818 - an answer of its own kind
    """Too many different reviews are in progress."""


class ReviewCache(Generic[K, V]):
    """Caches results for `CACHED_S`. Equal requests in progress share one result. Negative results have a cache of
    their own, so a thousand bad tokens evict no good one. A failure is not cached.

    is_positive: which cache a result belongs to. now: seconds.
    """

    def __init__(self, is_positive: Callable[[V], bool], now: Callable[[], float]) -> None:
        self._is_positive, self._now = is_positive, now
        self._cached: tuple[dict[K, tuple[float, V]], dict[K, tuple[float, V]]] = ({}, {})
        self._in_progress: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """ask: called if nothing is cached. Raises what it raises, and TooManyReviews."""
        now = self._now()
        for cache in self._cached:
            if key in cache and now < cache[key][0]:
                return cache[key][1]
        task = self._in_progress.get(key)
        if task is None:
            if len(self._in_progress) >= AT_ONCE:
                raise TooManyReviews
            task = asyncio.create_task(self._find(key, ask), name="API server review")
            self._in_progress[key] = task
            task.add_done_callback(lambda _: self._in_progress.pop(key))
        # The first caller may leave; the others still wait.
        return await asyncio.shield(task)

    async def stop(self) -> None:
        """Cancels reviews in progress."""
        tasks = tuple(self._in_progress.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _find(self, key: K, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        value = await ask()
        positive, negative = self._cached
        cache, other = (positive, negative) if self._is_positive(value) else (negative, positive)
        other.pop(key, None)
        cache.pop(key, None)  # the newest is last
        cache[key] = (self._now() + CACHED_S, value)
        if len(cache) > CACHED:
            del cache[next(iter(cache))]
        return value
