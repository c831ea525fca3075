"""Speaks to the Kubernetes API through the official client. The only module that imports it, when a client connects.

The client brings what is hard to get right: kubeconfig files, rotating tokens, exec plugins, TLS and proxies. Its
models (an object with some hundred attributes for each pod) are not used: lists and watches stay the API's own JSON.

Worked example: in a pod `client = await connect(None, None, Random())` uses its ServiceAccount;
`await client.page(PODS, None, "")` returns the first page of all pods. `await client.close()` when done.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version as installed_version
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import aiohttp

from . import auth, events, leases, protocol
from .auth import AccessRequest, AccessVerdict, ServerVersion, ServiceReference, User
from .events import EventRecord
from .leases import Lease
from .protocol import (
    OPENED,
    ApiFailure,
    CannotConnect,
    Document,
    Event,
    Garbled,
    Lines,
    ListPage,
    ListRequest,
    NotFound,
    Opened,
)
from .resources import APISERVICES, CONFIGMAPS, EVENTS, LEASES, Resource, permission, url

if TYPE_CHECKING:
    from kubernetes.aio.client import ApiClient, Configuration

# json.loads holds the GIL (measured: a thread helps nothing), about 1 ms for 100 kB. A pod has some 10 kB, so a page
# costs the event loop about 12 ms, and 5 ms for its records; 5,000 pods are 40 pages.
PAGE_OBJECTS = 125
# The API server ends a watch after so many seconds; spread out, so that not all watches are opened again at once.
WATCH_S = (240, 480)
LIST_AS_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
WATCH_AS_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

# Method, URL, headers, body and form of the client's `call_api`.
_Request: TypeAlias = tuple[str, str, dict[str, str], Any, list[Any]]
_BASIC_USER = "bind the user to the ClusterRoles system:basic-user and system:discovery, as Kubernetes does by default"
_AUTH_DELEGATOR = "bind Tidegate's ServiceAccount to the ClusterRole system:auth-delegator"


class TimeLimits(NamedTuple):
    """Time limits, seconds of the wall clock.

    connect_s: for a connection.
    answer_s:  for a page of a list, or until a watch is accepted; the API server itself gives up after 60.
    silence_s: of an open watch. A bookmark comes about once a minute, so two missed ones mean a dead connection.
    review_s:  for a short request with a waiting caller.
    """

    connect_s: float = 10.0
    answer_s: float = 65.0
    silence_s: float = 150.0
    review_s: float = 5.0


TIME_LIMITS = TimeLimits()


async def connect(
    kubeconfig: str | None,
    context: str | None,
    jitter: Random,
    patience: TimeLimits = TIME_LIMITS,
    account: Path = SERVICE_ACCOUNT,
) -> KubernetesClient:
    """A client for the API server of this pod or of a kubeconfig file. Sends no request yet. Raises CannotConnect.

    kubeconfig: a file, or several, as in $KUBECONFIG; None: the pod's own ServiceAccount (its files are in
                `account`) if this is a pod and no context is given, else $KUBECONFIG or ~/.kube/config.
    context:    one of the file's; None: its current one.
    """
    # A thousand modules of models: half a second that would block the event loop.
    await asyncio.to_thread(_import)
    from kubernetes.aio.client import ApiClient, Configuration  # noqa: PLC0415

    configuration = Configuration()
    # One connection for each watch and a few for lists: their number is bounded already.
    configuration.connection_pool_maxsize = 0
    # From Python 3.13 on OpenSSL would refuse CAs that violate RFC 5280, as those of many clusters do.
    configuration.disable_strict_ssl_verification = True
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        _configure_account(configuration, account)
    else:
        await _configure_file(configuration, _files(kubeconfig), context)
    try:
        client = ApiClient(configuration)
    except OSError as error:  # ssl.SSLError is one
        raise CannotConnect(f"certificates for {configuration.host}: {error}") from error
    client.user_agent = f"tidegate/{installed_version('tidegate')}"
    return KubernetesClient(client, jitter, patience)


@dataclass(frozen=True, slots=True)
class KubernetesClient:
    """Implements `Api`, `Reviews`, `ApiServices`, `Leases` and `Events`. jitter: varies the length of watches."""

    client: ApiClient
    jitter: Random
    patience: TimeLimits

    async def page(self, resource: Resource, namespace: str | None, after: str) -> ListPage:
        request = ListRequest("list", resource, namespace)
        query = [("limit", str(PAGE_OBJECTS)), *([("continue", after)] if after else [])]
        async with _limit(request, self.patience.answer_s):
            response = await self._open(request, query, LIST_AS_METADATA)
            try:
                body = await response.read()
            finally:
                response.close()
        return protocol.page(request, body)

    async def watch(
        self, resource: Resource, namespace: str | None, version: str
    ) -> AsyncGenerator[Opened | Event | Garbled, None]:
        request = ListRequest("watch", resource, namespace)
        query = [
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(self.jitter.randint(*WATCH_S))),
        ]
        async with _limit(request, self.patience.answer_s):
            response = await self._open(request, query, WATCH_AS_METADATA)
        lines = Lines()
        try:
            yield OPENED
            async for chunk in response.content.iter_any():
                for line in lines.feed(chunk):
                    yield protocol.event(request, line)
        except (aiohttp.ClientError, OSError):
            # Broken, or silent for too long. An incomplete line is dropped: the next watch has all of it.
            return
        finally:
            response.close()

    async def token_review(self, token: str) -> User | None:
        document = auth.token_review(token)
        return auth.user(await self._post(auth.TOKEN_REVIEWS, document, "create tokenreviews", _AUTH_DELEGATOR))

    async def access_review(self, user: User, access: AccessRequest) -> AccessVerdict:
        document, action = auth.access_review(user, access), "create subjectaccessreviews"
        return auth.verdict(await self._post(auth.ACCESS_REVIEWS, document, action, _AUTH_DELEGATOR))

    async def config_map(self, namespace: str, name: str) -> dict[str, str]:
        action = f"get configmap {namespace}/{name}"
        body = await self._get(url(CONFIGMAPS, namespace, name), action, permission(CONFIGMAPS, namespace, "get"))
        return auth.config_map_data(action, body)

    async def holder(self, name: str) -> ServiceReference | None:
        path, grant = url(APISERVICES, None, name), permission(APISERVICES, None, "get", name=name)
        try:
            return auth.holder(name, await self._get(path, f"get apiservice {name}", grant))
        except NotFound:
            return None

    async def lease(self, namespace: str, name: str) -> Lease | None:
        action = f"get lease {namespace}/{name}"
        try:
            body = await self._get(url(LEASES, namespace, name), action, _lease_permission(namespace))
        except NotFound:
            return None
        return leases.read(action, body)

    async def write_lease(self, namespace: str, name: str, lease: Lease) -> Lease:
        method, verb = ("PUT", "update") if lease.version else ("POST", "create")
        path, action = url(LEASES, namespace, name if lease.version else ""), f"{verb} lease {namespace}/{name}"
        document = leases.document(namespace, name, lease)
        _, body = await self._call(method, path, document, action, _lease_permission(namespace))
        return leases.read(action, body)

    async def write_event(self, happening: EventRecord, instance: str) -> str:
        namespace = happening.subject.ref.namespace
        action, document = f"create event in {namespace}", events.document(happening, instance)
        body = await self._post(url(EVENTS, namespace), document, action, _event_permission(namespace))
        return events.name(action, body)

    async def repeat_event(self, namespace: str, name: str, count: int, at: float) -> None:
        action, document = f"patch event {namespace}/{name}", events.series(count, at)
        await self._call("PATCH", url(EVENTS, namespace, name), document, action, _event_permission(namespace))

    async def version(self) -> tuple[ServerVersion, str | None]:
        """The server's version, and the header `Date` of the response. Raises ApiFailure."""
        headers, body = await self._call("GET", auth.VERSION, None, f"get {auth.VERSION}", _BASIC_USER)
        return auth.version(body), headers.get("Date")

    async def groups(self) -> frozenset[str]:
        """Each `GROUP/VERSION` that the cluster serves. Raises ApiFailure."""
        return auth.groups(await self._get(auth.GROUPS, f"get {auth.GROUPS}", _BASIC_USER))

    async def may(self, access: AccessRequest) -> AccessVerdict:
        """Whether this client has the access itself. Raises ApiFailure."""
        document, action = auth.self_access_review(access), "create selfsubjectaccessreviews"
        return auth.verdict(await self._post(auth.SELF_ACCESS_REVIEWS, document, action, _BASIC_USER))

    async def username(self) -> str:
        """The user of this client. Raises ApiFailure, with status 404 if the API server is older than 1.28."""
        document, action = auth.self_review(), "create selfsubjectreviews"
        return auth.self_username(await self._post(auth.SELF_REVIEWS, document, action, _BASIC_USER))

    async def close(self) -> None:
        await self.client.close()  # type: ignore[no-untyped-call]

    async def _open(
        self, request: ListRequest, query: list[tuple[str, str]], as_metadata: str
    ) -> aiohttp.ClientResponse:
        """The open response of a list or watch that the API accepts. Raises ApiFailure, and what aiohttp raises."""
        accept = as_metadata if request.resource.metadata_only else "application/json"
        path = url(request.resource, request.namespace)
        signed = await self._sign(request, "GET", path, header_params={"Accept": accept}, query_params=query)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self.patience.connect_s, sock_read=self.patience.silence_s
        )
        response: aiohttp.ClientResponse = (await self.client.call_api(*signed, _request_timeout=timeout)).response
        if response.status == HTTPStatus.OK:
            return response
        try:
            body = await response.read()
        finally:
            response.close()
        retry_after = response.headers.get("Retry-After")
        raise protocol.failure(request, request.permission, response.status, body, retry_after)

    async def _get(self, path: str, action: str, grant: str) -> bytes:
        return (await self._call("GET", path, None, action, grant))[1]

    async def _post(self, path: str, document: Document, action: str, grant: str) -> bytes:
        return (await self._call("POST", path, document, action, grant))[1]

    async def _call(
        self, method: str, path: str, document: Document | None, action: str, grant: str
    ) -> tuple[Mapping[str, str], bytes]:
        """Headers and body of a short response. Raises ApiFailure, with `action`, and `grant` if RBAC refuses."""
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Accept": "application/json", "Content-Type": content_type}
        signed = await self._sign(action, method, path, header_params=headers, body=document)
        async with _limit(action, self.patience.review_s):
            response: aiohttp.ClientResponse = (await self.client.call_api(*signed)).response
            try:
                body = await response.read()
            finally:
                response.close()
        if response.status not in (HTTPStatus.OK, HTTPStatus.CREATED):
            raise protocol.failure(action, grant, response.status, body)
        return response.headers, body

    async def _sign(self, action: object, method: str, path: str, **parameters: Any) -> _Request:
        """The arguments of `call_api`, with credentials."""
        try:
            return await self.client.param_serialize(method, path, auth_settings=["BearerToken"], **parameters)
        except Exception as error:  # a token file, an exec plugin, an OIDC issuer: any of them may fail in any way
            raise ApiFailure(None, f"{action}: no credentials: {str(error) or type(error).__name__}") from error


@asynccontextmanager
async def _limit(action: object, limit_s: float) -> AsyncGenerator[None, None]:
    """Bounds a request in time. Turns its exceptions into ApiFailure."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError as error:
        raise ApiFailure(None, f"{action}: no answer within {limit_s:g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise ApiFailure(None, f"{action}: {str(error) or type(error).__name__}") from error


def _lease_permission(namespace: str) -> str:
    return permission(LEASES, namespace, "get", "create", "update")


def _event_permission(namespace: str) -> str:
    return f"{permission(EVENTS, namespace, 'create', 'patch')}, or set kubernetes.events: false"


def _import() -> None:
    import kubernetes.aio  # noqa: F401, PLC0415


def _configure_account(configuration: Configuration, account: Path) -> None:
    """For the ServiceAccount of the pod. kubelet rotates its token; the client reads the file again each minute."""
    from kubernetes.aio.config import ConfigException  # noqa: PLC0415
    from kubernetes.aio.config.incluster_config import InClusterConfigLoader  # noqa: PLC0415

    try:
        loader = InClusterConfigLoader(str(account / "token"), str(account / "ca.crt"))  # type: ignore[no-untyped-call]
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError, UnicodeDecodeError) as error:
        raise CannotConnect(
            f"ServiceAccount in {account}: {error} Does the pod have automountServiceAccountToken: false?"
        ) from error


async def _configure_file(configuration: Configuration, files: str, context: str | None) -> None:
    """For a kubeconfig file. Its token is loaded again for each request: those of exec plugins and OIDC expire."""
    from kubernetes.aio.config import ConfigException, load_kube_config  # noqa: PLC0415

    try:
        loader = await load_kube_config(files, context, configuration, persist_config=False)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise CannotConnect(f"{files}: {error}") from error
    except Exception as error:  # the loader checks little of the file
        raise CannotConnect(f"{files}: not a kubeconfig file ({type(error).__name__}: {error})") from error
    configuration.refresh_api_key_hook = loader.load_and_set


def _files(kubeconfig: str | None) -> str:
    """One path, or several as in $KUBECONFIG, of which at least one exists. Raises CannotConnect."""
    files = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not any(Path(file).expanduser().is_file() for file in files.split(os.pathsep) if file):
        reason = "" if kubeconfig else "no pod's ServiceAccount (KUBERNETES_SERVICE_HOST is not set), and "
        raise CannotConnect(f"{reason}{files}: no such file")
    return files
