"""The listener that the API server forwards metrics requests to. Every number is made from memory at once.

What an answer may wait for is who asks and what they may, of which the API server is asked; never a source. Discovery,
which the API server probes five times at once and must get within 5 s, is for everybody who is somebody, and waits for
nothing. No answer carries Retry-After: clients would wait with the connection in hand, and the next sync of a
HorizontalPodAutoscaler is the retry.

    server = create(publisher, sources, host="", port=8443, tls=TlsFiles(...), groups=(EXTERNAL_GROUP,), clock=clock)
    port = await server.start()
    server.take(census)               # each new one; None while it is not known
    ... server.follow(client) ...     # a task: reads whom to believe, again and again
    await server.stop()
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Protocol

import structlog
from aiohttp import web

from exporter.clock import Clock
from exporter.kubernetes.auth import Reviews
from exporter.kubernetes.protocol import ApiFailure
from scaler.model import Board
from scaler.net import TLS_LIMITS, LimitedListener, listen
from scaler.workloads import Registry

from . import documents, pods, tls, values
from .auth import CONFIG_MAP, BadFrontProxy, FrontProxy, Gate, front_proxy
from .discovery import JSON, DiscoveryDocument, DiscoveryHandler
from .errors import ApiError
from .request import Custom, External, question
from .tls import MetricsTlsFiles, Serving, rotating
from .values import NOTHING, REPLICAS, Known, known

# A CA that is replaced stands beside its successor for longer than a minute.
READ_AGAIN_S = 60.0
RETRY_S = 5.0
# For requests under way as it stops: a question to the API server is given up after as long.
GRACE_S = 5.0
# Of one header: tokens that carry a person's hundred groups are longer than the usual 8 KiB.
LONGEST_HEADER = 64 * 1024

Observe = Callable[[str, str, float], None]
Told = Callable[[str | None], None]


class Boards(Protocol):
    """What is asked for numbers."""

    @property
    def board(self) -> Board: ...


class MetricsServer:
    def __init__(
        self,
        boards: Boards,
        sources: pods.Sources,
        *,
        host: str,
        port: int,
        context: Serving,
        groups: Iterable[str],
        clock: Clock,
        observe: Observe,
        front_proxy_told: Told,
    ) -> None:
        self._boards, self._host, self._port, self._context, self._clock = boards, host, port, context, clock
        self._observe, self._told = observe, front_proxy_told
        self._groups, self._pods = frozenset(groups), sources
        self._discovery = DiscoveryHandler(self._groups)
        self._gate = Gate(clock.now)
        self._known: Known = NOTHING
        self._read: FrontProxy | None = None
        self._problem: str | None = None
        self._listener: LimitedListener | None = None

    async def start(self) -> int:
        """Listen; returns the port (which matters if 0 was asked for). Raises AddressInUseError, OSError."""
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

    def take(self, census: Registry | None) -> None:
        """Which workloads there are from now on; None: those of the last census, and maybe others."""
        self._known = self._known._replace(whole=False) if census is None else known(census)

    async def follow(self, reviews: Reviews) -> None:
        """Ask this API server who asks and what they may, and whom to believe, until cancelled."""
        self._gate.reviews = reviews
        try:
            while True:
                problem = await self._read_front_proxy(reviews)
                if problem != self._problem:
                    self._problem = problem
                    self._told(problem)
                await self._clock.sleep(READ_AGAIN_S if problem is None else RETRY_S)
        finally:
            self._gate.reviews = None

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.stop()
        await self._gate.stop()

    async def _read_front_proxy(self, reviews: Reviews) -> str | None:
        """What is wrong with it, if so: then whom we believed, we believe."""
        try:
            proxy = front_proxy(await reviews.config_map(*CONFIG_MAP))
            if proxy != self._read:
                self._context.trust(proxy)
                self._gate.front_proxy = self._read = proxy
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
            answer = await self._made(request)
            body = json.dumps(answer.document, allow_nan=False).encode()
            response = web.Response(body=body, headers={"Content-Type": answer.content_type})
        except ApiError as refusal:
            response = _refused(refusal)
        except Exception:  # noqa: BLE001 - whoever asked understands a Status and nothing else
            structlog.get_logger().exception("the metrics API failed", path=request.path)
            response = _refused(ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "a bug in Tidegate; its log says more"))
        _, _, group, *rest = f"{request.path}//".split("/")
        what = group if group in self._groups and "namespaces" in rest else "discovery"
        self._observe(what, str(response.status), self._clock.now() - began)
        return response

    async def _made(self, request: web.Request) -> DiscoveryDocument:
        """Raises Refusal."""
        connection = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
        peer = tls.peer(connection) if isinstance(connection, ssl.SSLObject) else None
        user = await self._gate.user(peer, request.headers.items())
        if request.method != "GET":
            raise ApiError(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method}: there is only GET here")
        found = self._discovery.at(request.path, request.headers.get("Accept", ""))
        if found is not None:
            return found
        asked = question(request.rel_url.raw_path, request.query, self._groups)
        await self._gate.check(user, asked.access)
        return DiscoveryDocument(JSON, self._document(asked.read()))

    def _document(self, asked: External | Custom) -> documents.Document:
        """From one Board, or from what was read last of pods. Raises Refusal."""
        board, now = self._boards.board, self._clock.now()
        if isinstance(asked, External):
            external = values.matching_external_values(self._known, board, asked.namespace, asked.selector, now)
            return documents.external_values(REPLICAS, external)
        if isinstance(asked.asked, pods.AskedPods):
            found = pods.pod_values(self._known, board, self._pods, asked.asked, asked.metric, asked.selector, now)
        else:
            found = values.matching_object_values(self._known, board, asked.asked, asked.metric, asked.selector, now)
        return documents.custom_values(asked.version, asked.metric, found)


def create(
    boards: Boards,
    sources: pods.Sources,
    *,
    host: str,
    port: int,
    files: MetricsTlsFiles,
    groups: Iterable[str],
    clock: Clock,
    observe: Observe = lambda _what, _code, _seconds: None,
    tls_told: Told = lambda _problem: None,
    front_proxy_told: Told = lambda _problem: None,
) -> MetricsServer:
    """Build the server. Raises BadTlsFiles.

    sources:          who knows pods and what they say.
    groups:           those that are on, of EXTERNAL_GROUP and CUSTOM_GROUP.
    observe:          hears of every request that ended: the API group or "discovery", the status, the seconds.
    tls_told:         hears of files that cannot serve, and None once they can again.
    front_proxy_told: hears why it is not known whom to believe, and None once it is.
    """
    return MetricsServer(
        boards,
        sources,
        host=host,
        port=port,
        context=rotating(files, tls_told),
        groups=groups,
        clock=clock,
        observe=observe,
        front_proxy_told=front_proxy_told,
    )


def _refused(refusal: ApiError) -> web.Response:
    response = web.json_response(documents.status(refusal.code, refusal.words), status=refusal.code)
    if refusal.code == HTTPStatus.UNAUTHORIZED:
        # A forwarder whose certificate is not believed any more connects again, and shows what it has now.
        response.force_close()
    return response
