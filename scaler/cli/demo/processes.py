"""A Deployment whose replicas are processes of an engine, and the gateway in front of them, in real time.

The gateway holds requests only while no replica is ready; then each goes to the replica with the fewest requests. Its
metrics are those of the Endpoint Picker. Scaling down ends the newest replicas first: a loading one at once, a ready
one after its last response. A replica that ends by itself is replaced.

Worked example:

    async with open_processes(model, USUAL_SERVER) as cluster:
        cluster.gateway_url                                 # POST …/v1/completions is held at zero replicas
        cluster.scale(1, time.time())                       # 0.1 s later the request gets its first token
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp
from aiohttp import web

from . import llamacpp
from .pages import GatewayState, gateway_text
from .servers import listen, page_app

HEALTH_INTERVAL_S = 0.01  # of a loading replica: its port refuses or answers 503
_END_S = 5.0  # from SIGTERM to SIGKILL
_ENDLESS = aiohttp.ClientTimeout(total=None)


@dataclass(frozen=True, slots=True)
class ReplicaProgram:
    """start: an engine at a port of loopback; its `/health` is 200 once it serves. model: its name in the gateway's
    metrics. slots: requests that a replica runs together.
    """

    start: Callable[[int], subprocess.Popen[bytes]]
    model: str
    slots: int


@dataclass(slots=True, eq=False)
class ProcessReplica:
    """ready_at: None while it loads. requests: in progress. Times are POSIX seconds."""

    url: str
    process: subprocess.Popen[bytes]
    created_at: float
    ready_at: float | None = None
    draining: bool = False
    requests: int = 0


@dataclass(slots=True)
class ProcessTally:
    """Counts since the start. answered: completely. held_at_zero_at, woken_at: of the first wake, POSIX seconds."""

    sent: int = 0
    answered: int = 0
    changes: int = 0
    most_wanted: int = 0
    slept: bool = False
    held_at_zero_at: float | None = None
    woken_at: float | None = None


@dataclass(slots=True, eq=False)
class ProcessCluster:
    """Create it with `open_processes` or `open_cluster`.

    For measurements, in POSIX seconds: first_seen_at: the first response of the gateway's metrics with a held request
    since it was set to 0. scaled_at, ready_at: the last change of `wanted`, the last replica that became ready.
    """

    program: ReplicaProgram
    session: aiohttp.ClientSession
    gateway_url: str = ""
    wanted: int = 0
    replicas: list[ProcessReplica] = field(default_factory=list)  # oldest first
    held: deque[asyncio.Future[None]] = field(default_factory=deque)
    tally: ProcessTally = field(default_factory=ProcessTally)
    first_seen_at: float = 0.0
    scaled_at: float = 0.0
    ready_at: float = 0.0
    replica_seconds: float = 0.0  # of ended replicas
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def ready(self) -> list[ProcessReplica]:
        return [replica for replica in self.replicas if replica.ready_at is not None and not replica.draining]

    @property
    def loading(self) -> list[ProcessReplica]:
        return [replica for replica in self.replicas if replica.ready_at is None]

    @property
    def draining(self) -> list[ProcessReplica]:
        return [replica for replica in self.replicas if replica.draining]

    def gpu_seconds(self) -> float:
        """Seconds of all replicas, from each start to its end."""
        return self.replica_seconds + sum(time.time() - replica.created_at for replica in self.replicas)

    def pod_targets(self) -> list[tuple[str, str]]:
        """(name, URL of its metrics) of every ready replica."""
        return [(replica.url, f"{replica.url}/metrics") for replica in self.ready]

    def replica_count(self) -> tuple[int, int]:
        """(wanted, ready)."""
        return self.wanted, len(self.ready)

    def scale(self, replicas: int, now: float) -> None:
        """Sets the replicas of the Deployment."""
        tally = self.tally
        if replicas != self.wanted:
            tally.changes += 1
            tally.most_wanted = max(tally.most_wanted, replicas)
            tally.slept = tally.slept or replicas == 0
            self.scaled_at = now
            if self.wanted == 0 and tally.held_at_zero_at is not None and tally.woken_at is None:
                tally.woken_at = now
        self.wanted = replicas
        staying = [replica for replica in self.replicas if not replica.draining]
        for replica in staying[replicas:]:
            replica.draining = True
            self._end_if_drained(replica)
        for _ in range(len(staying), replicas):
            self._start()

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Passes a completion on to a replica, as soon as one is ready."""
        body = await request.read()
        self.tally.sent += 1
        if self.wanted == 0 and self.tally.held_at_zero_at is None:
            self.tally.held_at_zero_at = time.time()
        while not (ready := self.ready):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.held.append(turn)
            try:
                await turn
            finally:
                if turn in self.held:  # its client has left
                    self.held.remove(turn)
        replica = min(ready, key=lambda each: each.requests)
        replica.requests += 1
        try:
            response = await self._forward(request, replica, body)
            self.tally.answered += 1
            return response
        finally:
            replica.requests -= 1
            self._end_if_drained(replica)

    def state(self) -> GatewayState:
        ready = self.ready
        count, slots = max(1, len(ready)), self.program.slots
        return GatewayState(
            held=len(self.held),
            sent=self.tally.sent,
            ready=len(ready),
            waiting=sum(max(0, replica.requests - slots) for replica in ready) / count,
            running=sum(min(slots, replica.requests) for replica in ready) / count,
        )

    def page(self) -> str:
        if self.held and not self.first_seen_at:
            self.first_seen_at = time.time()
        return gateway_text(self.program.model, "chat", self.state())

    async def close(self) -> None:
        self.wanted = 0
        for replica in list(self.replicas):
            self._end(replica)
        await asyncio.gather(*self._tasks)

    async def _forward(self, request: web.Request, replica: ProcessReplica, body: bytes) -> web.StreamResponse:
        headers = {"Content-Type": "application/json"}
        async with self.session.post(f"{replica.url}{request.path}", data=body, headers=headers) as upstream:
            response = web.StreamResponse(status=upstream.status, headers={"Content-Type": upstream.content_type})
            await response.prepare(request)
            async for chunk in upstream.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    def _start(self) -> None:
        port = llamacpp.free_port()
        process = self.program.start(port)
        replica = ProcessReplica(f"http://{llamacpp.HOST}:{port}", process, time.time())
        self.replicas.append(replica)
        self._spawn(self._load(replica))

    async def _load(self, replica: ProcessReplica) -> None:
        while replica in self.replicas and not await self._is_healthy(replica):
            if replica.process.poll() is not None:
                self._end(replica)
                await asyncio.sleep(1.0)  # as a container that restarts
                self.scale(self.wanted, time.time())
                return
            await asyncio.sleep(HEALTH_INTERVAL_S)
        if replica in self.replicas:
            replica.ready_at = self.ready_at = time.time()
            while self.held:
                turn = self.held.popleft()
                if not turn.done():
                    turn.set_result(None)

    async def _is_healthy(self, replica: ProcessReplica) -> bool:
        try:
            async with self.session.get(f"{replica.url}/health") as response:
                return response.status == web.HTTPOk.status_code
        except aiohttp.ClientError:
            return False

    def _end_if_drained(self, replica: ProcessReplica) -> None:
        if replica.draining and not replica.requests and replica in self.replicas:
            self._end(replica)

    def _end(self, replica: ProcessReplica) -> None:
        self.replicas.remove(replica)
        self.replica_seconds += time.time() - replica.created_at
        replica.process.terminate()
        self._spawn(_reap(replica.process))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _reap(process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _END_S
    while process.poll() is None:
        if time.monotonic() > until:
            process.kill()
        await asyncio.sleep(HEALTH_INTERVAL_S)


@asynccontextmanager
async def open_cluster(program: ReplicaProgram) -> AsyncIterator[ProcessCluster]:
    """A Deployment at zero replicas, and its gateway on a free port of loopback."""
    async with aiohttp.ClientSession(timeout=_ENDLESS, connector=aiohttp.TCPConnector(limit=0)) as session:
        cluster = ProcessCluster(program, session)
        app = page_app(cluster.page)
        app.router.add_post("/v1/completions", cluster.complete)
        runner, cluster.gateway_url = await listen(app)
        try:
            yield cluster
        finally:
            await cluster.close()
            await runner.cleanup()


@asynccontextmanager
async def open_processes(model: Path, options: llamacpp.ServerOptions) -> AsyncIterator[ProcessCluster]:
    """The same with llama.cpp's server and this model."""
    start = partial(llamacpp.start, model, options=options)
    async with open_cluster(ReplicaProgram(start, llamacpp.MODEL, options.slots)) as cluster:
        yield cluster
