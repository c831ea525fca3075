"""The Kubernetes API over the official client: the only module that imports it, and only when somebody connects.

The client brings what is hard to get right: kubeconfig files, tokens that rotate, exec plugins, TLS, proxies. What it
would make of the answers (an object with some hundred attributes for each pod) is not wanted: lists and watches stay
the API's own JSON. Nothing here remembers what an object said.

Worked example: `client = await connect(None, None, Random())` in a pod uses its ServiceAccount;
`await client.page(PODS, None, "")` is the first page of all pods. `await client.close()` when done.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version as installed_version
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import aiohttp

from . import auth, events, leases, protocol
from .auth import AccessRequest, AccessVerdict, Holder, ServerVersion, User
from .events import Happening
from .leases import Lease
from .protocol import OPENED, ApiFailure, CannotConnect, Document, Event, Garbled, Lines, ListPage, ListRequest, Opened
from .resources import Resource, url

if TYPE_CHECKING:
    from kubernetes.aio.client import ApiClient, Configuration

# json.loads keeps the interpreter to itself (measured: a thread helps nothing), about 1 ms for 100 kB. A pod has some
# 10 kB, so a page costs the event loop about 25 ms; 5,000 pods are 20 pages.
PAGE_OBJECTS = 250
# The API server ends a watch after this many seconds; spread out, so that all of ours do not come back at once.
WATCH_S = (240, 480)
LIST_AS_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
WATCH_AS_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
_ANYBODY = "bind whoever asks to the ClusterRoles system:basic-user and system:discovery, as Kubernetes itself does"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Patience(NamedTuple):
    """Seconds of the wall.

    connect_s: for a connection. answer_s: for a page of a list, or until a watch is taken; the API server itself gives
    up after 60. silence_s: of an open watch. A bookmark comes about once a minute, so that two missed ones mean a
    connection that nobody holds at the other end. review_s: for one question about one request, whose sender waits.
    """

    connect_s: float = 10.0
    answer_s: float = 65.0
    silence_s: float = 150.0
    review_s: float = 5.0


PATIENCE = Patience()


async def connect(
    kubeconfig: str | None,
    context: str | None,
    jitter: Random,
    patience: Patience = PATIENCE,
    account: Path = ACCOUNT,
) -> KubernetesClient:
    """A client for the API server that this process belongs to, or that a kubeconfig file names. Asks nothing yet.

    kubeconfig: a file, or several, as in $KUBECONFIG; None: the pod's own ServiceAccount (whose files are in
                `account`) if this is a pod and no context is named, else $KUBECONFIG or ~/.kube/config.
    context:    one of the file's; None: its current one.
    Raises CannotConnect.
    """
    # A thousand modules of models: half a second that no answer should wait for.
    await asyncio.to_thread(_import)
    from kubernetes.aio.client import ApiClient, Configuration  # noqa: PLC0415

    configuration = Configuration()
    # One connection for each watch and a few for lists, of which we know how many there are: no bound is needed.
    configuration.connection_pool_maxsize = 0
    # From Python 3.13 on OpenSSL is told to refuse CAs that RFC 5280 would not have, as those of many clusters.
    configuration.disable_strict_ssl_verification = True
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        _as_account(configuration, account)
    else:
        await _as_in_file(configuration, _files(kubeconfig), context)
    try:
        client = ApiClient(configuration)
    except OSError as error:  # ssl.SSLError is one
        raise CannotConnect(f"certificates for {configuration.host}: {error}") from error
    client.user_agent = f"tidegate/{installed_version('tidegate')}"
    return KubernetesClient(client, jitter, patience)


def _import() -> None:
    import kubernetes.aio  # noqa: F401, PLC0415


def _as_account(configuration: Configuration, account: Path) -> None:
    """As the ServiceAccount of the pod. kubelet rotates its token; the client reads the file again each minute."""
    from kubernetes.aio.config import ConfigException  # noqa: PLC0415
    from kubernetes.aio.config.incluster_config import InClusterConfigLoader  # noqa: PLC0415

    try:
        loader = InClusterConfigLoader(str(account / "token"), str(account / "ca.crt"))  # type: ignore[no-untyped-call]
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError, UnicodeDecodeError) as error:
        raise CannotConnect(
            f"ServiceAccount in {account}: {error} Does the pod have automountServiceAccountToken: false?"
        ) from error


async def _as_in_file(configuration: Configuration, files: str, context: str | None) -> None:
    """As a kubeconfig file says. Its token is looked at again for each request: exec plugins' and OIDC's expire."""
    from kubernetes.aio.config import ConfigException, load_kube_config  # noqa: PLC0415

    try:
        loader = await load_kube_config(files, context, configuration, persist_config=False)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise CannotConnect(f"{files}: {error}") from error
    except Exception as error:  # whatever else somebody's file may hold: the loader checks little of it
        raise CannotConnect(f"{files}: not a kubeconfig file ({type(error).__name__}: {error})") from error
    configuration.refresh_api_key_hook = loader.load_and_set


def _files(kubeconfig: str | None) -> str:
    """One path, or several as in $KUBECONFIG, of which at least one is there."""
    files = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not any(Path(file).expanduser().is_file() for file in files.split(os.pathsep) if file):
        where = "" if kubeconfig else "no pod's ServiceAccount (KUBERNETES_SERVICE_HOST is not set), and "
        raise CannotConnect(f"{where}{files}: no such file")
    return files


@dataclass(frozen=True, slots=True)
class KubernetesClient:
    """Speaks `Api`, `Reviews`, `ApiServices`, `Leases` and `Events`. jitter: chance, for the length of watches."""

    client: ApiClient
    jitter: Random
    patience: Patience

    async def page(self, resource: Resource, namespace: str | None, after: str) -> ListPage:
        asked = ListRequest("list", resource, namespace)
        query = [("limit", str(PAGE_OBJECTS)), *([("continue", after)] if after else [])]
        try:
            async with asyncio.timeout(self.patience.answer_s):
                response = await self._get(asked, query, LIST_AS_METADATA)
                try:
                    body = await response.read()
                finally:
                    response.close()
        except (aiohttp.ClientError, OSError) as error:
            raise self._unanswered(asked, error) from error
        if response.status != HTTPStatus.OK:
            raise _failure(asked, response, body)
        return protocol.page(asked, body)

    async def watch(
        self, resource: Resource, namespace: str | None, version: str
    ) -> AsyncGenerator[Opened | Event | Garbled, None]:
        asked = ListRequest("watch", resource, namespace)
        seconds = self.jitter.randint(*WATCH_S)
        query = [
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(seconds)),
        ]
        response = await self._taken(asked, query)
        lines = Lines()
        try:
            yield OPENED
            async for chunk in response.content.iter_any():
                for line in lines.feed(chunk):
                    yield protocol.event(asked, line)
        except (aiohttp.ClientError, OSError):
            # Broken, or silent for too long. Half a line is forgotten with it: the next watch tells it whole.
            return
        finally:
            response.close()

    async def token_review(self, token: str) -> User | None:
        return auth.user(await self._review(auth.TOKEN_REVIEWS, auth.token_review(token)))

    async def access_review(self, user: User, access: AccessRequest) -> AccessVerdict:
        return auth.verdict(await self._review(auth.ACCESS_REVIEWS, auth.access_review(user, access)))

    async def config_map(self, namespace: str, name: str) -> dict[str, str]:
        asked = f"get configmap {namespace}/{name}"
        right = f'give Tidegate\'s ServiceAccount a Role in {namespace} with resources ["configmaps"], verbs ["get"]'
        path = auth.config_map_path(namespace, name)
        return auth.data(namespace, name, await self._ask("GET", path, None, asked, right))

    async def holder(self, name: str) -> Holder | None:
        asked, right = auth.asked(name), auth.right(name)
        try:
            body = await self._ask("GET", auth.path(name), None, asked, right)
        except ApiFailure as failed:
            if failed.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return auth.holder(name, body)

    async def lease(self, namespace: str, name: str) -> Lease | None:
        asked = f"get lease {namespace}/{name}"
        try:
            body = await self._ask("GET", leases.path(namespace, name), None, asked, leases.right(namespace))
        except ApiFailure as failed:
            if failed.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return leases.read(asked, body)

    async def write_lease(self, namespace: str, name: str, lease: Lease) -> Lease:
        method, verb = ("PUT", "update") if lease.version else ("POST", "create")
        path = leases.path(namespace, name if lease.version else "")
        asked, document = f"{verb} lease {namespace}/{name}", leases.document(namespace, name, lease)
        return leases.read(asked, await self._ask(method, path, document, asked, leases.right(namespace)))

    async def write_event(self, happening: Happening, instance: str) -> str:
        namespace = happening.subject.ref.namespace
        asked, document = f"create event in {namespace}", events.document(happening, instance)
        right = events.right(namespace)
        return events.name(asked, await self._ask("POST", events.path(namespace), document, asked, right))

    async def repeat_event(self, namespace: str, name: str, count: int, at: float) -> None:
        asked, document = f"patch event {namespace}/{name}", events.series(count, at)
        await self._ask("PATCH", events.path(namespace, name), document, asked, events.right(namespace))

    async def version(self) -> tuple[ServerVersion, str | None]:
        """And the header `Date` of the answer, as it came. Raises ApiFailure."""
        headers, body = await self._answer("GET", auth.VERSION, None, f"get {auth.VERSION}", _ANYBODY)
        return auth.version(body), headers.get("Date")

    async def groups(self) -> frozenset[str]:
        """Each `GROUP/VERSION` that the cluster has. Raises ApiFailure."""
        return auth.groups(await self._ask("GET", auth.GROUPS, None, f"get {auth.GROUPS}", _ANYBODY))

    async def may(self, access: AccessRequest) -> AccessVerdict:
        """May we do this ourselves? Raises ApiFailure."""
        document, asked = auth.own_access_review(access), "create selfsubjectaccessreviews"
        return auth.verdict(await self._ask("POST", auth.OWN_ACCESS_REVIEWS, document, asked, _ANYBODY))

    async def who(self) -> str:
        """As whom we ask. Raises ApiFailure; where the API server is older than 1.28 its status is 404."""
        asked = "create selfsubjectreviews"
        return auth.own_name(await self._ask("POST", auth.OWN_REVIEWS, auth.own_review(), asked, _ANYBODY))

    async def close(self) -> None:
        await self.client.close()  # type: ignore[no-untyped-call]

    async def _taken(self, asked: ListRequest, query: list[tuple[str, str]]) -> aiohttp.ClientResponse:
        """The response of a watch that the API has taken. Raises ApiFailure."""
        try:
            async with asyncio.timeout(self.patience.answer_s):
                response = await self._get(asked, query, WATCH_AS_METADATA)
                if response.status == HTTPStatus.OK:
                    return response
                try:
                    body = await response.read()
                finally:
                    response.close()
        except (aiohttp.ClientError, OSError) as error:
            raise self._unanswered(asked, error) from error
        raise _failure(asked, response, body)

    async def _review(self, path: str, document: Document) -> bytes:
        right = "bind Tidegate's ServiceAccount to the ClusterRole system:auth-delegator"
        return await self._ask("POST", path, document, f"create {path.rpartition('/')[2]}", right)

    async def _ask(self, method: str, path: str, document: Document | None, asked: str, right: str) -> bytes:
        """One short answer. asked, right: for the sentence of the ApiFailure it may raise."""
        return (await self._answer(method, path, document, asked, right))[1]

    async def _answer(
        self, method: str, path: str, document: Document | None, asked: str, right: str
    ) -> tuple[Mapping[str, str], bytes]:
        """Its headers and its body."""
        written = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Accept": "application/json", "Content-Type": written}
        try:
            request = await self.client.param_serialize(
                method, path, header_params=headers, body=document, auth_settings=["BearerToken"]
            )
        except Exception as error:  # as in `_get`
            raise ApiFailure(None, f"{asked}: no credentials: {str(error) or type(error).__name__}") from error
        try:
            async with asyncio.timeout(self.patience.review_s):
                answer = await self.client.call_api(*request)
                response: aiohttp.ClientResponse = answer.response
                try:
                    body = await response.read()
                finally:
                    response.close()
        except TimeoutError as error:
            raise ApiFailure(None, f"{asked}: no answer within {self.patience.review_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ApiFailure(None, f"{asked}: {str(error) or type(error).__name__}") from error
        if response.status not in (HTTPStatus.OK, HTTPStatus.CREATED):
            raise auth.failure(asked, right, response.status, body)
        return response.headers, body

    async def _get(self, asked: ListRequest, query: list[tuple[str, str]], as_metadata: str) -> aiohttp.ClientResponse:
        try:
            request = await self.client.param_serialize(
                "GET",
                url(asked.resource, asked.namespace),
                query_params=query,
                header_params={"Accept": as_metadata if asked.resource.metadata_only else "application/json"},
                auth_settings=["BearerToken"],
            )
        except Exception as error:  # a token file, an exec plugin, an OIDC issuer: anything may be wrong with those
            raise ApiFailure(None, f"{asked}: no credentials: {str(error) or type(error).__name__}") from error
        patience = aiohttp.ClientTimeout(
            total=None, sock_connect=self.patience.connect_s, sock_read=self.patience.silence_s
        )
        answer = await self.client.call_api(*request, _request_timeout=patience)
        response: aiohttp.ClientResponse = answer.response
        return response

    def _unanswered(self, asked: ListRequest, error: Exception) -> ApiFailure:
        if isinstance(error, TimeoutError):
            return ApiFailure(None, f"{asked}: no answer within {self.patience.answer_s:g} s")
        return ApiFailure(None, f"{asked}: {str(error) or type(error).__name__}")


def _failure(asked: ListRequest, response: aiohttp.ClientResponse, body: bytes) -> ApiFailure:
    return protocol.failure(asked, response.status, response.headers.get("Retry-After"), body)
