"""Who asks, and whether they may: the front proxy's word, else a token; then RBAC's.

A request that the API server forwards carries its user in headers, which are believed with the front proxy's
certificate and not without. Everybody else shows a bearer token, of which a TokenReview says whose it is. What they may
read, a SubjectAccessReview says; members of `system:masters` may everything, as everywhere in Kubernetes. Both answers
are remembered for 10 s. When the API server cannot be asked, that is said, and nobody is let in.

Worked example: `await gate.user(peer, headers)` of a connection without a certificate and with `X-Remote-User: ann` is
a Refusal 401: without the certificate the header is a stranger's claim.

The API server as a forwarder of requests: by which certificate it is known, and in which headers it says for whom.

The ConfigMap `kube-system/extension-apiserver-authentication` says all of it. A request's headers are believed only
with a client certificate that was verified against that CA and carries an allowed name; without one they are anybody's
words and mean nothing. Which certificate a connection showed, the TLS side says. Pure.

Worked example: with `requestheader-allowed-names: ["front-proxy-client"]`, headers `X-Remote-User: ann` and
`X-Remote-Group: dev` on a connection of CN `front-proxy-client` are `User("ann", groups=("dev",))`.

Answers that stay true for a moment, so that the same question is not asked a hundred times a second.

Questions that are equal and come while the first one is under way share its answer. What is remembered is bounded, and
noes are kept apart from yeses: whoever sends a thousand bad tokens makes nobody forget a good one. A failure is not an
answer and is not remembered.

Worked example: of `get("t", ask)` three times within 10 s the first calls `ask()`, and all three get its answer.
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


class Gate:
    """front_proxy, reviews: None until they are known, and then nobody passes that way."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.front_proxy: FrontProxy | None = None
        self.reviews: Reviews | None = None
        self._now = now
        # By a token's hash: a token is nothing to keep.
        self._tokens: Remembered[bytes, User | None] = Remembered(lambda user: user is not None, now)
        self._accesses: Remembered[tuple[User, AccessRequest], AccessVerdict] = Remembered(
            lambda verdict: verdict.allowed, now
        )

    async def user(self, peer: Peer | None, headers: Headers) -> User:
        """Raises Refusal: 401, 429 or 503."""
        pairs = list(headers)
        if peer is not None and self.front_proxy is not None:
            if (why := self.front_proxy.distrust(peer, self._now())) is not None:
                raise ApiError(HTTPStatus.UNAUTHORIZED, f"client certificate of {shown(peer.name)}: {why}")
            if (user := self.front_proxy.user(pairs)) is not None:
                return user
        token = _bearer(pairs)
        if token is None:
            words = "no credentials: neither the front proxy's certificate nor a bearer token"
            raise ApiError(HTTPStatus.UNAUTHORIZED, words)
        return await self._whose(token)

    async def check(self, user: User, access: AccessRequest) -> None:
        """Raises Refusal: 403, 429 or 503."""
        if MASTERS in user.groups:
            return
        verdict = await _answered(
            self._accesses.get((user, access), lambda: self._asking().access_review(user, access))
        )
        if not verdict.allowed:
            raise ApiError(HTTPStatus.FORBIDDEN, _denied(user, access, verdict))

    async def stop(self) -> None:
        await self._tokens.stop()
        await self._accesses.stop()

    async def _whose(self, token: str) -> User:
        hashed = sha256(token.encode()).digest()
        user = await _answered(self._tokens.get(hashed, lambda: self._asking().token_review(token)))
        if user is None:
            raise ApiError(HTTPStatus.UNAUTHORIZED, "bearer token: the API server does not know it, or it has expired")
        return user

    def _asking(self) -> Reviews:
        if self.reviews is None:
            raise ApiFailure(None, "there is no connection to it yet")
        return self.reviews


async def _answered(answer: Awaitable[V]) -> V:
    try:
        return await answer
    except TooManyQuestions:
        words = "too many callers that the API server has to be asked about; ask again in a moment"
        raise ApiError(HTTPStatus.TOO_MANY_REQUESTS, words) from None
    except ApiFailure as failed:
        words = f"the API server does not say who asks, or what they may: {failed.detail}"
        raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, words) from failed


def _bearer(headers: Headers) -> str | None:
    """The token of the first Authorization header. Raises Refusal."""
    said = next((value for name, value in headers if name.lower() == "authorization"), "")
    scheme, _, token = said.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return None
    if not _TOKEN.fullmatch(token.strip()):
        words = "Authorization: a bearer token must be printable ASCII without spaces (RFC 6750)"
        raise ApiError(HTTPStatus.UNAUTHORIZED, words)
    return token.strip()


def _denied(user: User, access: AccessRequest, verdict: AccessVerdict) -> str:
    """As the API server itself would say it, and what to do."""
    resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    because = f": {verdict.reason}" if verdict.reason else ""
    return (
        f"User {user.name!a} cannot {access.verb} resource {resource} in API group {access.group} in namespace "
        f"{shown(access.namespace)}{because}. Bind it to a role with these words; HorizontalPodAutoscalers ask as "
        f"system:serviceaccount:kube-system:horizontal-pod-autoscaler"
    )


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


K = TypeVar("K", bound=Hashable)

# As long as Kubernetes' own delegating servers do: a right that is taken away is gone after it.
KEPT_S = 10.0
KEPT = 4096  # of each kind
AT_ONCE = 64


class TooManyQuestions(Exception):  # noqa: N818 - an answer of its own kind
    """So many different questions are under way that this one is not asked."""


class Remembered(Generic[K, V]):
    """is_yes: which kind an answer is of. now: seconds."""

    def __init__(self, is_yes: Callable[[V], bool], now: Callable[[], float]) -> None:
        self._is_yes, self._now = is_yes, now
        self._kept: tuple[dict[K, tuple[float, V]], dict[K, tuple[float, V]]] = ({}, {})
        self._under_way: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """ask: called where the answer is not remembered. Raises what it does, and TooManyQuestions."""
        now = self._now()
        for kept in self._kept:
            if key in kept and now < kept[key][0]:
                return kept[key][1]
        task = self._under_way.get(key)
        if task is None:
            if len(self._under_way) >= AT_ONCE:
                raise TooManyQuestions
            task = asyncio.create_task(self._find(key, ask), name="a question to the API server")
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key))
        # The first one to ask may give up; the others still want to know.
        return await asyncio.shield(task)

    async def stop(self) -> None:
        """End what is under way."""
        tasks = tuple(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _find(self, key: K, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        value = await ask()
        yes, no = self._kept
        kept, other = (yes, no) if self._is_yes(value) else (no, yes)
        other.pop(key, None)
        kept.pop(key, None)  # the newest stand last
        kept[key] = (self._now() + KEPT_S, value)
        if len(kept) > KEPT:
            del kept[next(iter(kept))]
        return value
