"""Answers KEDA from one entry of the Board, and refuses calls without cost to others.

There is one metric, `tidegate-replicas` with target 1. Its value is the published replicas of the decision: rounded
outward past the HPA's tolerance where the HPA would drop a step up. So the HPA's division gives back that number.

    workload decided at 3 replicas    GetMetrics 3      IsActive true
    asleep                            GetMetrics 0      IsActive false
    held on stale readings            as decided last; never an error
    readings unknown                  UNAVAILABLE, so KEDA changes nothing or falls back
    no ScaledObject matches the call  PERMISSION_DENIED, with the same message whether the object exists or not
    no such configured workload       NOT_FOUND
    invalid metadata                  INVALID_ARGUMENT
    `mode: observe`                   FAILED_PRECONDITION

KEDA polls a new ScaledObject at once, often before the watch shows it and before its pods are scraped, and reports an
error as a Warning. So a call that no ScaledObject matches, or whose workload is unknown since a moment, waits for a
change before its error, see `Patience`. It is authorized anew after the wait.

Only GetMetrics, IsActive and StreamIsActive return errors. KEDA's fallback does not engage while GetMetricSpec fails,
and KEDA 2.19 builds its HPA on cpu 80 % if it fails at creation: GetMetricSpec always returns the same spec.

The error of a refused call must teach a foreign tenant nothing. The log must not grow with the calls, which a client
can repeat, with invented names, thousands of times a second: a trigger that differs from its ScaledObject and is
called every 5 s has one line every 10 minutes, with `suppressed=119` from the second on; a client that invents 10,000
names has 64 lines in 10 minutes.

A quota bounds the open calls of each peer address. All of KEDA's calls come from one pod, its operator, and for each
external trigger at most four are open at once: the streams StreamIsActive and StreamMetricSpec, one call of the poll,
and one of the HPA sync. 256 more are for tools, health checks, and calls of triggers that were made a moment ago. With
1,000 external triggers the quota is 4 x 1000 + 256 = 4,256 calls; KEDA has 2,000 streams open and up to 2,000 polls. A
pod that opens streams without end holds 4,256 of the server's 12,000 calls. Above 1,468 triggers two such quotas are
more than 12,000 calls: only mutual TLS or a NetworkPolicy excludes such an address then.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias
from urllib.parse import unquote

import grpc

from exporter.model import WorkloadKey
from scaler.config.errors import shown
from scaler.engine.publisher import Publisher
from scaler.model import METRIC, Decision, Reason
from scaler.workloads import Doubt, RejectedCall
from scaler.workloads.caller_check import plain

from .authorization import CallAuthorizer, Turn
from .externalscaler_pb2 import (
    GetMetricSpecResponse,
    GetMetricsRequest,
    GetMetricsResponse,
    IsActiveResponse,
    MetricSpec,
    MetricValue,
    ScaledObjectRef,
)
from .externalscaler_pb2_grpc import ExternalScalerServicer

# ruff: noqa: N802, ARG002 - the methods and what they are given are the contract's


# A string: grpc's own class takes no parameters at run time.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

REASON_KEY = "tidegate-reason"

# KEDA strips the "s0-" that it gives the HPA; a call by hand may have it.
_OUR_METRIC = re.compile(rf"(s\d+-)?{METRIC}", re.ASCII)
# All targets of a large node pool would not fit into a gRPC status.
_STALE_SHOWN = 5
# (event, fields): writes one line.
Warn: TypeAlias = Callable[..., Any]
PERIOD_S: Final = 600.0
SUBJECTS: Final = 64
_CODES: Final = {
    Doubt.NOT_CONFIGURED: grpc.StatusCode.NOT_FOUND,
    Doubt.MISMATCH: grpc.StatusCode.PERMISSION_DENIED,
    Doubt.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Doubt.OBSERVED: grpc.StatusCode.FAILED_PRECONDITION,
    Doubt.NOT_SYNCED: grpc.StatusCode.UNAVAILABLE,
}
# A call that may be a moment ahead of the watch.
_MAY_END: Final = frozenset({Doubt.MISMATCH, Doubt.NOT_SYNCED})
# The watch, the registry's thread, and the first scrape and tick of a new workload take about a second.
PATIENCE_S: Final = 3.0
WAITERS: Final = 64
MOST_IN_VAIN: Final = 4096
CALLS_PER_TRIGGER: Final = 4
CALLS_BESIDE: Final = 256


class MetricAnswer(NamedTuple):
    """The common answer of GetMetrics and IsActive. replicas: published ones."""

    replicas: int
    active: bool
    reason: Reason


def specs() -> GetMetricSpecResponse:
    return GetMetricSpecResponse(metricSpecs=[MetricSpec(metricName=METRIC, targetSize=1, targetSizeFloat=1.0)])


@lru_cache(maxsize=1024)
def metrics(replicas: int) -> GetMetricsResponse:
    """The response with this number, which all calls share: it must not be changed."""
    # KEDA reads the float if it is above 0, else the integer: both must say the same.
    value = MetricValue(metricName=METRIC, metricValue=replicas, metricValueFloat=float(replicas))
    return GetMetricsResponse(metricValues=[value])


def answer(publisher: Publisher, workload: WorkloadKey, now: float) -> MetricAnswer:
    """The answer of GetMetrics and IsActive. now: POSIX seconds, for the age in the error. Raises RpcError."""
    decision = publisher.get(workload)
    if decision is None:
        raise _undecided(workload)
    if decision.published is None:
        raise RpcError(grpc.StatusCode.UNAVAILABLE, _why_unknown(decision, now), decision.reason)
    return MetricAnswer(decision.published, decision.active, decision.reason)


def _undecided(workload: WorkloadKey) -> RpcError:
    return RpcError(grpc.StatusCode.UNAVAILABLE, f"{workload}: no decision yet; waiting for readings", Reason.UNKNOWN)


def _why_unknown(decision: Decision, now: float) -> str:
    stale = decision.evidence.stale
    why = f"not enough readings; see `tidegate explain {decision.workload.namespace}/{decision.workload.name}`"
    if stale:
        why = f"no fresh readings from {', '.join(shown(source) for source in stale[:_STALE_SHOWN])}"
    if len(stale) > _STALE_SHOWN:
        why += f" and {len(stale) - _STALE_SHOWN} more"
    return f"{decision.workload}: unknown for {_unknown_for_s(decision, now):.0f} s: {why}"


def _unknown_for_s(decision: Decision, now: float) -> float:
    since = decision.decided_at if decision.held_since is None else decision.held_since
    return max(0.0, now - since)


def _refuse_foreign_metric(name: str) -> None:
    if not _OUR_METRIC.fullmatch(name):
        raise RpcError(grpc.StatusCode.INVALID_ARGUMENT, f"metricName: must be {METRIC}, got {shown(name)}")


class Servicer(ExternalScalerServicer):
    """The five calls. Streams never end by themselves: the interceptor cancels them while they wait."""

    def __init__(
        self,
        publisher: Publisher,
        claims: CallAuthorizer,
        now: Callable[[], float],
        refusals: RateLimitedLog,
        patience: Patience,
    ) -> None:
        self._publisher = publisher
        self._claims = claims
        self._now = now
        self._refusals = refusals
        self._patience = patience

    async def GetMetricSpec(self, request: ScaledObjectRef, context: Context) -> GetMetricSpecResponse:
        return specs()

    async def StreamMetricSpec(self, request: ScaledObjectRef, context: Context) -> None:
        await context.write(specs())
        await asyncio.get_running_loop().create_future()  # the spec never changes

    async def GetMetrics(self, request: GetMetricsRequest, context: Context) -> GetMetricsResponse:
        try:
            _refuse_foreign_metric(request.metricName)
            given = await self._answer(request.scaledObjectRef, context)
        except RpcError as refusal:
            await _abort(context, refusal)
        _set_reason(context, given.reason)
        return metrics(given.replicas)

    async def IsActive(self, request: ScaledObjectRef, context: Context) -> IsActiveResponse:
        try:
            given = await self._answer(request, context)
        except RpcError as refusal:
            await _abort(context, refusal)
        _set_reason(context, given.reason)
        return IsActiveResponse(result=given.active)

    async def StreamIsActive(self, request: ScaledObjectRef, context: Context) -> None:
        """The state at once and at each change. While it is unknown nothing is sent: an error would cost up to a
        minute of KEDA's back-off, and with it the push that wakes the workload.
        """
        sent: bool | None = None
        try:
            while True:  # each round is one authorization of this ScaledObject
                workload = await self._authorized(request, context)
                turn = self._claims.turn(request.namespace, request.name)
                sent = await self._push(workload, sent, turn, context)
        except RpcError as refusal:
            await _abort(context, refusal)

    async def _push(self, workload: WorkloadKey, sent: bool | None, turn: Turn, context: Context) -> bool | None:
        """Sends the state where it differs from `sent`, until the turn ends. Returns what was sent last."""
        while not turn.over:
            entry = self._publisher.get(workload)
            if entry is None and not self._publisher.knows(workload):
                raise _undecided(workload)  # the registry is a moment ahead of the decisions, or behind
            if entry is not None and entry.replicas is not None and entry.active != sent:
                sent = entry.active
                await context.write(IsActiveResponse(result=sent))
            await turn.until(self._publisher.changed(workload, entry))
        return sent

    async def _authorized(self, ref: ScaledObjectRef, context: Context) -> WorkloadKey:
        with suppress(RejectedCall):  # the usual case at once: nothing has to wait, and nothing is counted
            return self._claims.authorize(ref.namespace, ref.name, ref.scalerMetadata)
        peer, call = address(context.peer()), (ref.namespace, ref.name, frozenset(ref.scalerMetadata.items()))
        try:
            with self._patience.of(peer, call) as longest_s:
                return await self._claim(ref, longest_s)
        except RejectedCall as rejected:
            if rejected.refused.detail:
                name = plain(f"{ref.namespace}/{ref.name}")
                self._refusals.warn(name, "call refused", scaled_object=name, peer=peer, detail=rejected.refused.detail)
            raise RpcError(_CODES[rejected.refused.doubt], rejected.refused.sentence) from None

    async def _claim(self, ref: ScaledObjectRef, longest_s: float) -> WorkloadKey:
        """The workload that a call speaks for, as soon as the registry says so. Raises RejectedCall after longest_s,
        whatever the registry says about the object: the time of an error teaches nothing either.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + longest_s
        while True:
            turn = self._claims.turn(ref.namespace, ref.name)
            try:
                return self._claims.authorize(ref.namespace, ref.name, ref.scalerMetadata)
            except RejectedCall as rejected:
                left_s = until - clock()
                if left_s <= 0.0 or rejected.refused.doubt not in _MAY_END:
                    raise
            await turn.until(asyncio.sleep(left_s))

    async def _answer(self, ref: ScaledObjectRef, context: Context) -> MetricAnswer:
        workload = await self._authorized(ref, context)
        entry = self._publisher.get(workload)
        if entry is None or entry.published is None:
            if self._is_new(workload):
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._patience.longest_s):
                        while self._is_new(workload):
                            await self._publisher.changed(workload, self._publisher.get(workload))
                workload = await self._authorized(ref, context)  # the object may have been edited meanwhile
            if (entry := self._publisher.get(workload)) is not None and entry.published is None:
                await self._publisher.renew()  # the error names the targets that are silent now
        return answer(self._publisher, workload, self._now())

    def _is_new(self, workload: WorkloadKey) -> bool:
        """Whether a workload is unknown only since a moment: its first readings may be on their way."""
        entry = self._publisher.get(workload)
        if entry is None:
            return self._publisher.knows(workload)
        return entry.published is None and _unknown_for_s(entry, self._now()) < self._patience.longest_s


class Patience:
    """Bounds the calls that wait before they are refused: `longest_s` each, WAITERS of one address at once, and a call
    that has waited in vain does not wait again, so that a wrong ScaledObject does not delay the HPA at every sync.

    now: POSIX seconds.
    """

    def __init__(self, longest_s: float, now: Callable[[], float]) -> None:
        self.longest_s = longest_s
        self._now = now
        self._waiters: Counter[str] = Counter()
        self._in_vain: dict[int, float] = {}  # by hash of the call, oldest first

    @contextmanager
    def of(self, peer: str, call: Hashable) -> Iterator[float]:
        """Yields the seconds that a call may wait; counts it until it ends."""
        now, key = self._now(), hash(call)
        while self._in_vain and now - next(iter(self._in_vain.values())) >= PERIOD_S:
            del self._in_vain[next(iter(self._in_vain))]
        may_wait = key not in self._in_vain and self._waiters[peer] < WAITERS
        self._waiters[peer] += 1
        try:
            yield self.longest_s if may_wait else 0.0
        except RejectedCall:
            if may_wait:
                self._in_vain[key] = now
                if len(self._in_vain) > MOST_IN_VAIN:
                    del self._in_vain[next(iter(self._in_vain))]
            raise
        finally:
            self._waiters[peer] -= 1
            if not self._waiters[peer]:
                del self._waiters[peer]


def _set_reason(context: Context, reason: Reason) -> None:
    context.set_trailing_metadata(((REASON_KEY, reason.value),))


async def _abort(context: Context, refusal: RpcError) -> NoReturn:
    trailer = ((REASON_KEY, refusal.reason.value),) if refusal.reason else ()
    await context.abort(refusal.code, refusal.message, trailer)


class RpcError(Exception):
    """An error response."""

    def __init__(self, code: grpc.StatusCode, message: str, reason: Reason | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason


class RateLimitedLog:
    """Writes log lines that a client can cause: each subject once in `PERIOD_S`, and `SUBJECTS` of them at most.

    now:  POSIX seconds.
    """

    def __init__(self, now: Callable[[], float], warn: Warn) -> None:
        self._now = now
        self._warn = warn
        self._last: dict[Hashable, float] = {}  # by subject, oldest first
        self._suppressed = 0

    def warn(self, subject: Hashable, event: str, **fields: object) -> None:
        """Writes the line, unless this subject had one within the period or too many subjects had."""
        now = self._now()
        while self._last and now - next(iter(self._last.values())) >= PERIOD_S:
            del self._last[next(iter(self._last))]
        if subject in self._last or len(self._last) >= SUBJECTS:
            self._suppressed += 1
            return
        self._last[subject] = now
        self._warn(event, **fields, suppressed=self._suppressed)
        self._suppressed = 0


@lru_cache(maxsize=1024)
def address(peer: str) -> str:
    """The address of a peer without its port, as gRPC names peers.

    `ipv4:10.0.0.5:43122` is `10.0.0.5`, `ipv6:%5B::1%5D:57574` is `::1`, `unix:` is `unix`.
    """
    kind, _, rest = peer.partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return kind
    return unquote(rest.rpartition(":")[0]).strip("[]")


class Quota:
    """Open calls by address.

    triggers: the number of external triggers; None before the first list. Then there is no quota: unknown is not
              zero, and KEDA connects before the API server has been listed.
    """

    def __init__(self, triggers: Callable[[], int | None], refusals: RateLimitedLog) -> None:
        self._triggers = triggers
        self._open: dict[str, int] = {}
        self._refusals = refusals

    def enter(self, peer: str) -> str | None:
        """Counts a call that begins. Returns why it is refused, or None. Either way `leave` must follow."""
        calls = self._open[peer] = self._open.get(peer, 0) + 1
        triggers = self._triggers()
        if triggers is None:
            return None
        quota = CALLS_PER_TRIGGER * triggers + CALLS_BESIDE
        if calls <= quota:
            return None
        self._refusals.warn(peer, "peer over call quota", peer=peer, quota=quota)
        return (
            f"{peer} has too many calls open: must be at most {quota} ({CALLS_PER_TRIGGER} for each of {triggers} "
            f"external triggers and {CALLS_BESIDE}), got {calls}. The client at this address is at fault: it must end "
            "its streams"
        )

    def leave(self, peer: str) -> None:
        """Counts a call that ended."""
        calls = self._open[peer] = self._open[peer] - 1
        if not calls:
            del self._open[peer]
