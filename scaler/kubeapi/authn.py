"""Who asks, and whether they may: the front proxy's word, else a token; then RBAC's.

A request that the API server forwards carries its user in headers, which are believed with the front proxy's
certificate and not without. Everybody else shows a bearer token, of which a TokenReview says whose it is. What they may
read, a SubjectAccessReview says; members of `system:masters` may everything, as everywhere in Kubernetes. Both answers
are remembered for 10 s. When the API server cannot be asked, that is said, and nobody is let in.

Worked example: `await gate.user(peer, headers)` of a connection without a certificate and with `X-Remote-User: ann` is
a Refusal 401: without the certificate the header is a stranger's claim.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from hashlib import sha256
from http import HTTPStatus
from typing import TypeVar

from exporter.cluster.api import ApiFailure
from exporter.cluster.reviews import Access, Reviews, User, Verdict

from ..config.bad_words import shown
from .frontproxy import FrontProxy, Headers, Peer
from .refusal import Refusal
from .remember import Remembered, TooManyQuestions

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
        self._accesses: Remembered[tuple[User, Access], Verdict] = Remembered(lambda verdict: verdict.allowed, now)

    async def user(self, peer: Peer | None, headers: Headers) -> User:
        """Raises Refusal: 401, 429 or 503."""
        pairs = list(headers)
        if peer is not None and self.front_proxy is not None:
            if (why := self.front_proxy.distrust(peer, self._now())) is not None:
                raise Refusal(HTTPStatus.UNAUTHORIZED, f"client certificate of {shown(peer.name)}: {why}")
            if (user := self.front_proxy.user(pairs)) is not None:
                return user
        token = _bearer(pairs)
        if token is None:
            words = "no credentials: neither the front proxy's certificate nor a bearer token"
            raise Refusal(HTTPStatus.UNAUTHORIZED, words)
        return await self._whose(token)

    async def check(self, user: User, access: Access) -> None:
        """Raises Refusal: 403, 429 or 503."""
        if MASTERS in user.groups:
            return
        verdict = await _answered(
            self._accesses.get((user, access), lambda: self._asking().access_review(user, access))
        )
        if not verdict.allowed:
            raise Refusal(HTTPStatus.FORBIDDEN, _denied(user, access, verdict))

    async def stop(self) -> None:
        await self._tokens.stop()
        await self._accesses.stop()

    async def _whose(self, token: str) -> User:
        hashed = sha256(token.encode()).digest()
        user = await _answered(self._tokens.get(hashed, lambda: self._asking().token_review(token)))
        if user is None:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "bearer token: the API server does not know it, or it has expired")
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
        raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, words) from None
    except ApiFailure as failed:
        words = f"the API server does not say who asks, or what they may: {failed.detail}"
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, words) from failed


def _bearer(headers: Headers) -> str | None:
    """The token of the first Authorization header. Raises Refusal."""
    said = next((value for name, value in headers if name.lower() == "authorization"), "")
    scheme, _, token = said.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return None
    if not _TOKEN.fullmatch(token.strip()):
        words = "Authorization: a bearer token must be printable ASCII without spaces (RFC 6750)"
        raise Refusal(HTTPStatus.UNAUTHORIZED, words)
    return token.strip()


def _denied(user: User, access: Access, verdict: Verdict) -> str:
    """As the API server itself would say it, and what to do."""
    resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    because = f": {verdict.reason}" if verdict.reason else ""
    return (
        f"User {user.name!a} cannot {access.verb} resource {resource} in API group {access.group} in namespace "
        f"{shown(access.namespace)}{because}. Bind it to a role with these words; HorizontalPodAutoscalers ask as "
        f"system:serviceaccount:kube-system:horizontal-pod-autoscaler"
    )
