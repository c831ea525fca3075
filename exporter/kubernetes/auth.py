"""Who somebody is and what they may do, as the Kubernetes API is asked and answers: documents in, values out.

A TokenReview says whose a token is, a SubjectAccessReview whether that user may do one thing, and the ConfigMap
`kube-system/extension-apiserver-authentication` whom to believe who forwards requests. Nothing here knows a socket, nor
remembers an answer.

Worked example: `token_review("t")` is `{"kind": "TokenReview", ..., "spec": {"token": "t"}}`, and `user(b'{"status":
{"authenticated": true, "user": {"username": "ann"}}}')` is `User("ann")`; with `"authenticated": false` it is None.

What an API server says of itself: its version, its API groups, and what time it is there. Bytes in, values out.

Worked example: `version(b'{"major": "1", "minor": "35+", "gitVersion": "v1.35.2-gke.1"}')` is
`ServerVersion(1, 35, "v1.35.2-gke.1")`, and `groups` of /apis has "keda.sh/v1alpha1" where KEDA is installed.

Who answers for a version of an API group: an APIService of the API server, read as the Service it forwards to.

A cluster has one APIService for each version of a group, so whoever holds it is the only one that is asked. Whether
that is as somebody wanted, is not for this room to say; nor whether the Service answers.

Worked example: `holder("v1.apps", b'{"spec": {"service": {"namespace": "keda", "name": "x"}}}')`
is `Holder("keda", "x")`, and of an APIService that names no Service it is `Holder()`: the API server answers itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from .protocol import ApiFailure, Document, Ending, Forbidden, start

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
# Anybody whom the API server knows may ask these of themselves (ClusterRole system:basic-user).
OWN_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OWN_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class User(NamedTuple):
    """Somebody, as the API server knows them. extra: what the authenticator adds, by key."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class AccessRequest(NamedTuple):
    """One thing somebody wants to do, in RBAC's words."""

    verb: str
    group: str
    resource: str
    namespace: str
    version: str = "*"
    subresource: str = ""
    name: str = ""


class AccessVerdict(NamedTuple):
    """reason: the authorizer's own words; "" where it gives none."""

    allowed: bool
    reason: str = ""


class Reviews(Protocol):
    """What a server that others reach through the API server asks of it. Each call raises ApiFailure."""

    async def token_review(self, token: str) -> User | None:
        """Whose token it is; None: nobody's, or it has expired."""

    async def access_review(self, user: User, access: AccessRequest) -> AccessVerdict:
        """May they?"""

    async def config_map(self, namespace: str, name: str) -> Mapping[str, str]:
        """Its `data`."""


def config_map_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"


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


def own_access_review(access: AccessRequest) -> Document:
    spec = {"resourceAttributes": access._asdict()}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}


def own_review() -> Document:
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def own_name(body: bytes) -> str:
    """Of a SelfSubjectReview: as whom we ask; "" where it does not say. Raises ApiFailure if it is none."""
    said = part("create selfsubjectreviews", body, "status").get("userInfo")
    return str(said.get("username") or "") if isinstance(said, dict) else ""


def user(body: bytes) -> User | None:
    """The status of a TokenReview. Raises ApiFailure if it is none."""
    asked = "create tokenreviews"
    status = part(asked, body, "status")
    if status.get("authenticated") is not True:
        return None
    said = status.get("user")
    if not isinstance(said, dict) or not isinstance(said.get("username"), str) or not said["username"]:
        raise ApiFailure(None, f"{asked}: authenticated, and no username: {start(body)!r}")
    extra = said.get("extra") or {}
    return User(
        said["username"],
        str(said.get("uid") or ""),
        tuple(str(group) for group in said.get("groups") or ()),
        tuple(sorted((str(key), tuple(str(value) for value in values or ())) for key, values in extra.items())),
    )


def verdict(body: bytes) -> AccessVerdict:
    """The status of a SubjectAccessReview. Raises ApiFailure if it is none."""
    status = part("create subjectaccessreviews", body, "status")
    # `denied` is a no that no other authorizer may overrule; where nobody says anything, it is a no as well.
    allowed = status.get("allowed") is True and status.get("denied") is not True
    return AccessVerdict(allowed, str(status.get("reason") or ""))


def data(namespace: str, name: str, body: bytes) -> dict[str, str]:
    """The `data` of a ConfigMap. Raises ApiFailure if it is none."""
    found = part(f"get configmap {namespace}/{name}", body, "data")
    return {str(key): str(value) for key, value in found.items()}


def failure(asked: str, right: str, status: int, body: bytes) -> ApiFailure:
    """What an HTTP status that is no success means. right: what to give whom, should it be RBAC."""
    try:
        said = json.loads(body)
        message = said.get("message")
    except (ValueError, RecursionError, AttributeError):
        said = message = None
    says = f": the API server says: {message if isinstance(message, str) else start(body)}"
    if status == HTTPStatus.FORBIDDEN and _is_ending(said):
        return Ending(status, f"{asked}: HTTP 403{says}")
    if status == HTTPStatus.FORBIDDEN:
        return Forbidden(status, f"{asked}: HTTP 403, RBAC does not allow it: {right}{says}")
    return ApiFailure(status, f"{asked}: HTTP {status}{says}")


def _is_ending(said: Any) -> bool:
    """It is not RBAC: the namespace is being deleted (plugin/pkg/admission/namespace/lifecycle)."""
    details = said.get("details") if isinstance(said, dict) else None
    causes = details.get("causes") if isinstance(details, dict) else None
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == "NamespaceTerminating" for cause in causes
    )


def part(asked: str, body: bytes, key: str) -> dict[str, Any]:
    """One mapping of an object; empty where it has none. Raises ApiFailure if the body is no object."""
    try:
        found = json.loads(body).get(key) or {}
    except (ValueError, RecursionError, AttributeError):
        found = None
    if not isinstance(found, dict):
        raise ApiFailure(None, f"{asked}: not an answer of the Kubernetes API: {start(body)!r}")
    return found


VERSION = "/version"
GROUPS = "/apis"

_DIGITS = re.compile(r"\d+")


class ServerVersion(NamedTuple):
    """As it numbers itself, and as it writes it out."""

    major: int
    minor: int
    written: str


def version(body: bytes) -> ServerVersion:
    """Raises ApiFailure if it is no version."""
    try:
        said = json.loads(body)
        major, minor = _DIGITS.match(said["major"]), _DIGITS.match(said["minor"])  # providers write "35+"
        if major is None or minor is None:
            raise ValueError(said)  # noqa: TRY301 - the same to whoever asks
        return ServerVersion(int(major[0]), int(minor[0]), str(said["gitVersion"]))
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ApiFailure(None, f"get {VERSION}: no version: {start(body)!r}") from error


def groups(body: bytes) -> frozenset[str]:
    """Each `GROUP/VERSION` beside the core's. Raises ApiFailure if it is no list of groups."""
    try:
        said = json.loads(body)["groups"]
        return frozenset(str(version["groupVersion"]) for group in said for version in group["versions"])
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ApiFailure(None, f"get {GROUPS}: no list of API groups: {start(body)!r}") from error


API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


class Holder(NamedTuple):
    """The Service that an APIService forwards to; both "" where the API server answers itself."""

    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"Service {self.namespace}/{self.name}" if self.name else "the API server itself"


class ApiServices(Protocol):
    async def holder(self, name: str) -> Holder | None:
        """Who answers for `VERSION.GROUP`; None: nobody, there is no such APIService. Raises ApiFailure."""


def path(name: str) -> str:
    return f"{API_SERVICES}/{quote(name, safe='')}"


def asked(name: str) -> str:
    """What is asked for, in the words of an ApiFailure."""
    return f"get apiservice {name}"


def right(name: str) -> str:
    """What to give Tidegate, should RBAC not allow it."""
    rule = f'resources ["apiservices"], resourceNames ["{name}"], verbs ["get"]'
    return f'give Tidegate\'s ServiceAccount a ClusterRole with apiGroups ["apiregistration.k8s.io"], {rule}'


def holder(name: str, body: bytes) -> Holder:
    """Raises ApiFailure if it is no APIService."""
    spec = part(asked(name), body, "spec")
    service = spec.get("service")
    if spec and service is None:
        return Holder()
    if isinstance(service, dict) and service.get("namespace") and service.get("name"):
        return Holder(str(service["namespace"]), str(service["name"]))
    shown = start(body)
    raise ApiFailure(None, f"{asked(name)}: no APIService: {shown!r}")
