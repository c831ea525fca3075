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
from collections.abc import Callable, Hashable
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
CALLS_PER_TRIGGER: Final = 4
CALLS_BESIDE: Final = 256


class MetricAnswer(NamedTuple):
    """The common answer of GetMetrics and IsActive. replicas: published ones."""

    replicas: int
    active: bool
    reason: Reason


def specs() -> GetMetricSpecResponse:
    return GetMetricSpecResponse(metricSpecs=[MetricSpec(metricName=METRIC, targetSize=1, targetSizeFloat=1.0)])


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
    since = decision.decided_at if decision.held_since is None else decision.held_since
    message = f"{decision.workload}: unknown for {max(0.0, now - since):.0f} s ({decision.reason})"
    stale = decision.evidence.stale
    if stale:
        message += f"; no fresh readings from {', '.join(shown(source) for source in stale[:_STALE_SHOWN])}"
    if len(stale) > _STALE_SHOWN:
        message += f" and {len(stale) - _STALE_SHOWN} more"
    return message


def _refuse_foreign_metric(name: str) -> None:
    if not _OUR_METRIC.fullmatch(name):
        raise RpcError(grpc.StatusCode.INVALID_ARGUMENT, f"metricName: must be {METRIC}, got {shown(name)}")


class Servicer(ExternalScalerServicer):
    """The five calls. Streams never end by themselves: the interceptor cancels them while they wait."""

    def __init__(
        self, publisher: Publisher, claims: CallAuthorizer, now: Callable[[], float], refusals: RateLimitedLog
    ) -> None:
        self._publisher = publisher
        self._claims = claims
        self._now = now
        self._refusals = refusals

    async def GetMetricSpec(self, request: ScaledObjectRef, context: Context) -> GetMetricSpecResponse:
        return specs()

    async def StreamMetricSpec(self, request: ScaledObjectRef, context: Context) -> None:
        await context.write(specs())
        await asyncio.get_running_loop().create_future()  # the spec never changes

    async def GetMetrics(self, request: GetMetricsRequest, context: Context) -> GetMetricsResponse:
        try:
            _refuse_foreign_metric(request.metricName)
            given = self._answer(request.scaledObjectRef, context)
        except RpcError as refusal:
            await _abort(context, refusal)
        _set_reason(context, given.reason)
        # KEDA reads the float if it is above 0, else the integer: both must say the same.
        value = MetricValue(metricName=METRIC, metricValue=given.replicas, metricValueFloat=float(given.replicas))
        return GetMetricsResponse(metricValues=[value])

    async def IsActive(self, request: ScaledObjectRef, context: Context) -> IsActiveResponse:
        try:
            given = self._answer(request, context)
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
                workload = self._authorized(request, context)
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

    def _authorized(self, ref: ScaledObjectRef, context: Context) -> WorkloadKey:
        try:
            return self._claims.authorize(ref.namespace, ref.name, ref.scalerMetadata)
        except RejectedCall as rejected:
            if rejected.refused.detail:
                name = plain(f"{ref.namespace}/{ref.name}")
                peer = address(context.peer())
                self._refusals.warn(name, "call refused", scaled_object=name, peer=peer, detail=rejected.refused.detail)
            raise RpcError(_CODES[rejected.refused.doubt], rejected.refused.sentence) from None

    def _answer(self, ref: ScaledObjectRef, context: Context) -> MetricAnswer:
        return answer(self._publisher, self._authorized(ref, context), self._now())


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
        self._open: Counter[str] = Counter()
        self._refusals = refusals

    def enter(self, peer: str) -> str | None:
        """Counts a call that begins. Returns why it is refused, or None. Either way `leave` must follow."""
        self._open[peer] += 1
        triggers, calls = self._triggers(), self._open[peer]
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
        self._open[peer] -= 1
        if not self._open[peer]:
            del self._open[peer]
