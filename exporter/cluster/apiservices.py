"""Who answers for a version of an API group: an APIService of the API server, read as the Service it forwards to.

A cluster has one APIService for each version of a group, so whoever holds it is the only one that is asked. Whether
that is as somebody wanted, is not for this room to say; nor whether the Service answers.

Worked example: `holder("v1.apps", b'{"spec": {"service": {"namespace": "keda", "name": "x"}}}')`
is `Holder("keda", "x")`, and of an APIService that names no Service it is `Holder()`: the API server answers itself.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol
from urllib.parse import quote

from .answers import start
from .api import ApiFailure
from .reviews import part

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
