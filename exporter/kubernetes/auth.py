"""Builds and parses authentication, authorization and server information documents of the Kubernetes API.

A TokenReview identifies the user of a token, a SubjectAccessReview decides whether that user may do one thing, and the
ConfigMap `kube-system/extension-apiserver-authentication` names the trusted front proxies. The server's version, its
API groups, and the Service that an APIService forwards to are here too. Nothing is cached.

Worked example: `token_review("t")` is `{"kind": "TokenReview", ..., "spec": {"token": "t"}}`, and `user(b'{"status":
{"authenticated": true, "user": {"username": "ann"}}}')` is `User("ann")`; with `"authenticated": false` it is None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from .protocol import ApiFailure, Document, excerpt, section

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
# Every authenticated user may create these for itself (ClusterRole system:basic-user).
SELF_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
VERSION = "/version"
GROUPS = "/apis"

_DIGITS = re.compile(r"\d+")


class User(NamedTuple):
    """A user of the API server. extra: what the authenticator adds, by key."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class AccessRequest(NamedTuple):
    """RBAC's resourceAttributes of one request."""

    verb: str
    group: str
    resource: str
    namespace: str
    version: str = "*"
    subresource: str = ""
    name: str = ""


class AccessVerdict(NamedTuple):
    """reason: the authorizer's; "" if it gives none."""

    allowed: bool
    reason: str = ""


class ServerVersion(NamedTuple):
    """written: the server's gitVersion, such as "v1.35.2-gke.1"."""

    major: int
    minor: int
    written: str


class ServiceReference(NamedTuple):
    """The Service that an APIService forwards to; both "" where the API server answers itself."""

    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"Service {self.namespace}/{self.name}" if self.name else "the API server itself"


class Reviews(Protocol):
    """The calls of the API server that the metrics API uses. Each raises ApiFailure."""

    async def token_review(self, token: str) -> User | None:
        """None if the token is invalid or has expired."""

    async def access_review(self, user: User, access: AccessRequest) -> AccessVerdict: ...

    async def config_map(self, namespace: str, name: str) -> Mapping[str, str]:
        """Its `data`."""


class ApiServices(Protocol):
    async def holder(self, name: str) -> ServiceReference | None:
        """The Service behind `VERSION.GROUP`; None if there is no such APIService. Raises ApiFailure."""


def token_review(token: str) -> Document:
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}


def access_review(user: User, access: AccessRequest) -> Document:
    spec = {
        "user": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra},
        "resourceAttributes": access._asdict(),
    }
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def self_access_review(access: AccessRequest) -> Document:
    spec = {"resourceAttributes": access._asdict()}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}


def self_review() -> Document:
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def self_username(body: bytes) -> str:
    """The username in a SelfSubjectReview; "" if it has none. Raises ApiFailure if the body is none."""
    info = section("create selfsubjectreviews", body, "status").get("userInfo")
    return str(info.get("username") or "") if isinstance(info, dict) else ""


def user(body: bytes) -> User | None:
    """The user in a TokenReview; None if it is not authenticated. Raises ApiFailure if the body is none."""
    action = "create tokenreviews"
    status = section(action, body, "status")
    if status.get("authenticated") is not True:
        return None
    info = status.get("user")
    if not isinstance(info, dict) or not isinstance(info.get("username"), str) or not info["username"]:
        raise ApiFailure(None, f"{action}: authenticated without a username: {excerpt(body)!r}")
    extra = info.get("extra") or {}
    return User(
        info["username"],
        str(info.get("uid") or ""),
        tuple(str(group) for group in info.get("groups") or ()),
        tuple(sorted((str(key), tuple(str(value) for value in values or ())) for key, values in extra.items())),
    )


def verdict(body: bytes) -> AccessVerdict:
    """The verdict of a SubjectAccessReview. Raises ApiFailure if the body is none."""
    status = section("create subjectaccessreviews", body, "status")
    # `denied` overrules other authorizers. Without a decision of any of them the request is refused too.
    allowed = status.get("allowed") is True and status.get("denied") is not True
    return AccessVerdict(allowed, str(status.get("reason") or ""))


def config_map_data(action: str, body: bytes) -> dict[str, str]:
    """The `data` of a ConfigMap. Raises ApiFailure if the body is none."""
    return {str(key): str(value) for key, value in section(action, body, "data").items()}


def version(body: bytes) -> ServerVersion:
    """The response to GET /version. Raises ApiFailure if the body is none."""
    try:
        parsed = json.loads(body)
        major, minor = _DIGITS.match(parsed["major"]), _DIGITS.match(parsed["minor"])  # providers write "35+"
        if major is not None and minor is not None:
            return ServerVersion(int(major[0]), int(minor[0]), str(parsed["gitVersion"]))
    except (ValueError, RecursionError, KeyError, TypeError):
        pass
    raise ApiFailure(None, f"get {VERSION}: no version: {excerpt(body)!r}")


def groups(body: bytes) -> frozenset[str]:
    """Each `GROUP/VERSION` of GET /apis, which excludes the core. Raises ApiFailure if the body is none."""
    try:
        found = json.loads(body)["groups"]
        return frozenset(str(version["groupVersion"]) for group in found for version in group["versions"])
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ApiFailure(None, f"get {GROUPS}: no list of API groups: {excerpt(body)!r}") from error


def holder(name: str, body: bytes) -> ServiceReference:
    """The Service behind an APIService. Raises ApiFailure if the body is none.

    Worked example: `holder("v1.apps", b'{"spec": {"service": {"namespace": "keda", "name": "x"}}}')` is
    `Holder("keda", "x")`; of a spec without a Service it is `Holder()`.
    """
    action = f"get apiservice {name}"
    spec = section(action, body, "spec")
    service = spec.get("service")
    if spec and service is None:
        return ServiceReference()
    if isinstance(service, dict) and service.get("namespace") and service.get("name"):
        return ServiceReference(str(service["namespace"]), str(service["name"]))
    raise ApiFailure(None, f"{action}: no APIService: {excerpt(body)!r}")
