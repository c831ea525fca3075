"""Listens for metrics requests that the API server forwards. All numbers come from memory.

An answer may wait for the API server's reviews of the caller, never for a target. Discovery, which the API server
probes five times at once and must get within 5 s, is open to every authenticated caller and waits for nothing else. No
response has Retry-After: clients would keep the connection and wait, and the next sync of an HPA is the retry.

    server = create(publisher, sources, host="", port=8443, files=TlsFiles(...), groups=(EXTERNAL_GROUP,), clock=clock)
    port = await server.start()
    server.take(registry)             # each new one; None while it is not current
    ... server.follow(client) ...     # a task: reads the front proxy's ConfigMap again and again
    await server.stop()
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterable
from http import HTTPStatus

import structlog
from aiohttp import web

from exporter.clock import Clock
from exporter.kubernetes.auth import Reviews
from exporter.kubernetes.protocol import ApiFailure
from scaler.engine.publisher import Publisher
from scaler.net import TLS_LIMITS, LimitedListener, listen
from scaler.tls import ProblemListener, TlsFiles
from scaler.workloads import Registry

from . import documents, pods, tls, values
from .auth import CONFIG_MAP, BadFrontProxy, FrontProxy, Gate, front_proxy
from .discovery import JSON, DiscoveryDocument, DiscoveryHandler
from .errors import ApiError
from .request import CustomRequest, ExternalRequest, parse_request
from .tls import ListenerContext, rotating
from .values import NO_WORKLOADS, REPLICAS, WorkloadIndex, index

# A CA and its successor are both valid for longer than a minute.
READ_AGAIN_S = 60.0
RETRY_S = 5.0
# For requests in progress as it stops: a review times out after as long.
GRACE_S = 5.0
# Of one header, bytes: a token with a hundred groups is longer than the usual 8 KiB.
LONGEST_HEADER = 64 * 1024

Observe = Callable[[str, str, float], None]


class MetricsServer:
    """Serves the metrics API. Made by `create`."""

    def __init__(
        self,
        publisher: Publisher,
        sources: pods.Sources,
        *,
        host: str,
        port: int,
        context: ListenerContext,
        groups: Iterable[str],
        clock: Clock,
        observe: Observe,
        on_front_proxy_problem: ProblemListener,
    ) -> None:
        self._publisher, self._host, self._port, self._context, self._clock = publisher, host, port, context, clock
        self._observe, self._on_front_proxy_problem = observe, on_front_proxy_problem
        self._groups, self._pods = frozenset(groups), sources
        self._discovery = DiscoveryHandler(self._groups)
        self._gate = Gate(clock.now)
        self._index: WorkloadIndex = NO_WORKLOADS
        self._front_proxy: FrontProxy | None = None
        self._problem: str | None = None
        self._listener: LimitedListener | None = None

    async def start(self) -> int:
        """Listens. Returns the port, which differs from `port` if that is 0. Raises AddressInUseError, OSError."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._listener = await listen(
            app,
            self._host,
            self._port,
            "metrics API",
            context=self._context,
            limits=TLS_LIMITS,
            longest_header=LONGEST_HEADER,
            grace_s=GRACE_S,
        )
        return self._listener.port

    def take(self, registry: Registry | None) -> None:
        """Sets the workload registry. None marks the last one as incomplete."""
        self._index = self._index._replace(complete=False) if registry is None else index(registry)

    async def follow(self, reviews: Reviews) -> None:
        """Uses this API server for reviews, and reads its front proxy again and again, until cancelled."""
        self._gate.reviews = reviews
        try:
            while True:
                problem = await self._read_front_proxy(reviews)
                if problem != self._problem:
                    self._problem = problem
                    self._on_front_proxy_problem(problem)
                await self._clock.sleep(READ_AGAIN_S if problem is None else RETRY_S)
        finally:
            self._gate.reviews = None

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.stop()
        await self._gate.stop()

    async def _read_front_proxy(self, reviews: Reviews) -> str | None:
        """Its problem, if any; then the previous front proxy stays."""
        try:
            proxy = front_proxy(await reviews.config_map(*CONFIG_MAP))
            if proxy != self._front_proxy:
                self._context.trust(proxy)
                self._gate.front_proxy = self._front_proxy = proxy
        except ApiFailure as failed:
            return failed.detail
        except BadFrontProxy as bad:
            return f"ConfigMap {'/'.join(CONFIG_MAP)}: {bad}"
        if proxy is None:
            return f"ConfigMap {'/'.join(CONFIG_MAP)} has no requestheader-client-ca-file: nothing can be forwarded"
        return None

    async def _answer(self, request: web.Request) -> web.Response:
        began = self._clock.now()
        try:
            found = await self._document(request)
            body = json.dumps(found.document, allow_nan=False).encode()
            response = web.Response(body=body, headers={"Content-Type": found.content_type})
        except ApiError as refusal:
            response = _refused(refusal)
        except Exception:  # noqa: BLE001 - clients understand nothing but a Status
            structlog.get_logger().exception("metrics API request failed", path=request.path)
            response = _refused(ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "a bug in Tidegate; its log says more"))
        _, _, group, *rest = f"{request.path}//".split("/")
        name = group if group in self._groups and "namespaces" in rest else "discovery"
        self._observe(name, str(response.status), self._clock.now() - began)
        return response

    async def _document(self, request: web.Request) -> DiscoveryDocument:
        """Raises ApiError."""
        connection = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
        peer = tls.peer(connection) if isinstance(connection, ssl.SSLObject) else None
        user = await self._gate.user(peer, request.headers.items())
        if request.method != "GET":
            raise ApiError(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method}: must be GET")
        found = self._discovery.at(request.path, request.headers.get("Accept", ""))
        if found is not None:
            return found
        parsed = parse_request(request.rel_url.raw_path, request.query, self._groups)
        await self._gate.check(user, parsed.access)
        await self._publisher.renew()
        return DiscoveryDocument(JSON, self._values(parsed.read()))

    def _values(self, request: ExternalRequest | CustomRequest) -> documents.Document:
        """From one Board, or from the latest samples of pods. Raises ApiError."""
        board, now = self._publisher.board, self._clock.now()
        if isinstance(request, ExternalRequest):
            external = values.matching_external_values(self._index, board, request.namespace, request.selector, now)
            return documents.external_values(REPLICAS, external)
        if isinstance(request.objects, pods.PodRequest):
            found = pods.pod_values(
                self._index, board, self._pods, request.objects, request.metric, request.selector, now
            )
        else:
            found = values.matching_object_values(
                self._index, board, request.objects, request.metric, request.selector, now
            )
        return documents.custom_values(request.version, request.metric, found)


def create(
    publisher: Publisher,
    sources: pods.Sources,
    *,
    host: str,
    port: int,
    files: TlsFiles,
    groups: Iterable[str],
    clock: Clock,
    observe: Observe = lambda _what, _code, _seconds: None,
    on_tls_problem: ProblemListener = lambda _problem: None,
    on_front_proxy_problem: ProblemListener = lambda _problem: None,
) -> MetricsServer:
    """Builds the server. Raises BadTlsFiles.

    groups:                 those that are on, of EXTERNAL_GROUP and CUSTOM_GROUP.
    observe:                called for every request that ended: the API group or "discovery", the status, the seconds.
    on_tls_problem:         called when files cannot serve, and with None once they can again.
    on_front_proxy_problem: called when the front proxy is unknown, and with None once it is known.
    """
    return MetricsServer(
        publisher,
        sources,
        host=host,
        port=port,
        context=rotating(files, on_tls_problem),
        groups=groups,
        clock=clock,
        observe=observe,
        on_front_proxy_problem=on_front_proxy_problem,
    )


def _refused(refusal: ApiError) -> web.Response:
    response = web.json_response(documents.status(refusal.code, refusal.message), status=refusal.code)
    if refusal.code == HTTPStatus.UNAUTHORIZED:
        # A front proxy with a replaced certificate connects again, and shows the new one.
        response.force_close()
    return response
