"""What KEDA asks, answered from one entry of the Board.

It knows the contract of an external scaler and KEDA's habits as its client; it refuses to know how a decision came
about. There is one metric for good, `tidegate-replicas` with target 1, whose value is what the decision tells: its
replicas, rounded outward past the HPA's tolerance where that would drop a step up. So the HorizontalPodAutoscaler's
division gives back the number that was decided.

    workload decided at 3 replicas    GetMetrics 3      IsActive true
    asleep                            GetMetrics 0      IsActive false
    held on stale readings            as it was decided; never an error
    known, and nothing is known of it UNAVAILABLE, so KEDA changes nothing or falls back
    no ScaledObject says the same     PERMISSION_DENIED, in the same words whether there is one or not
    no such configured workload       NOT_FOUND
    metadata that cannot be           INVALID_ARGUMENT
    `mode: observe`                   FAILED_PRECONDITION

Errors come from GetMetrics, IsActive and StreamIsActive alone. KEDA's fallback does not engage while GetMetricSpec
fails, and KEDA 2.19 builds its HorizontalPodAutoscaler on cpu 80 % when it fails at creation: so GetMetricSpec always
answers, and always the same.
"""
# ruff: noqa: N802, ARG002 - the methods and what they are given are the contract's

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

import grpc

from exporter.model import WorkloadKey

from ..board import Decision, Reason
from ..census import Unbelieved
from ..census.words import plain
from ..config.bad_words import shown
from .claims import Claims, Turn
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
from .quota import address
from .refusal import Refusal, Seldom, of_doubt

# A string: grpc's own class takes no parameters at run time.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

METRIC = "tidegate-replicas"
REASON_KEY = "tidegate-reason"

# KEDA strips the "s0-" it gives the HorizontalPodAutoscaler; whoever asks by hand may not.
_OUR_METRIC = re.compile(rf"(s\d+-)?{METRIC}", re.ASCII)
# Enough to find the culprit; all of a large node pool would not fit into a gRPC status.
_STALE_SHOWN = 5


class Decisions(Protocol):
    """What KEDA's front needs of the rest. All of it is memory: nothing here waits for a source."""

    def get(self, workload: WorkloadKey) -> Decision | None:
        """The Board's present entry; None if there is none (yet)."""

    async def changed(self, workload: WorkloadKey, seen: Decision | None) -> Decision | None:
        """Wait until the entry is not `seen`, and return it."""

    def knows(self, workload: WorkloadKey) -> bool:
        """Is it one that is decided, even if nothing is decided yet?"""


class Answer(NamedTuple):
    """What GetMetrics and IsActive both say. told: replicas, as the HPA is to hear them."""

    told: int
    active: bool
    reason: Reason


def specs() -> GetMetricSpecResponse:
    return GetMetricSpecResponse(metricSpecs=[MetricSpec(metricName=METRIC, targetSize=1, targetSizeFloat=1.0)])


def answer(decisions: Decisions, workload: WorkloadKey, now: float) -> Answer:
    """The one rule of GetMetrics and IsActive. `now`: POSIX seconds, for the age in the error. Raises Refusal."""
    decision = decisions.get(workload)
    if decision is None:
        raise _undecided(workload)
    if decision.told is None:
        raise Refusal(grpc.StatusCode.UNAVAILABLE, _why_unknown(decision, now), decision.reason)
    return Answer(decision.told, decision.active, decision.reason)


def _undecided(workload: WorkloadKey) -> Refusal:
    words = f"{workload}: nothing is decided yet; the first readings are awaited"
    return Refusal(grpc.StatusCode.UNAVAILABLE, words, Reason.UNKNOWN)


def _why_unknown(decision: Decision, now: float) -> str:
    since = decision.decided_at if decision.held_since is None else decision.held_since
    words = f"{decision.workload}: unknown for {max(0.0, now - since):.0f} s ({decision.reason})"
    stale = decision.evidence.stale
    if stale:
        words += f"; nothing fresh from {', '.join(shown(source) for source in stale[:_STALE_SHOWN])}"
    if len(stale) > _STALE_SHOWN:
        words += f" and {len(stale) - _STALE_SHOWN} more"
    return words


def _refuse_foreign_metric(name: str) -> None:
    if not _OUR_METRIC.fullmatch(name):
        words = f"metricName: no such metric; there is one, {METRIC}, got {shown(name)}"
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, words)


class Servicer(ExternalScalerServicer):
    """The five calls. The streams never end by themselves: whoever serves them cancels them while they wait."""

    def __init__(self, decisions: Decisions, claims: Claims, now: Callable[[], float], refusals: Seldom) -> None:
        self._decisions = decisions
        self._claims = claims
        self._now = now
        self._refusals = refusals

    async def GetMetricSpec(self, request: ScaledObjectRef, context: Context) -> GetMetricSpecResponse:
        return specs()

    async def StreamMetricSpec(self, request: ScaledObjectRef, context: Context) -> None:
        await context.write(specs())
        await asyncio.get_running_loop().create_future()  # the specs never change: nothing more is ever said

    async def GetMetrics(self, request: GetMetricsRequest, context: Context) -> GetMetricsResponse:
        try:
            _refuse_foreign_metric(request.metricName)
            given = self._answer(request.scaledObjectRef, context)
        except Refusal as refusal:
            await _abort(context, refusal)
        _tell_reason(context, given.reason)
        # KEDA reads the float if it is above 0, else the integer: both must say the same.
        value = MetricValue(metricName=METRIC, metricValue=given.told, metricValueFloat=float(given.told))
        return GetMetricsResponse(metricValues=[value])

    async def IsActive(self, request: ScaledObjectRef, context: Context) -> IsActiveResponse:
        try:
            given = self._answer(request, context)
        except Refusal as refusal:
            await _abort(context, refusal)
        _tell_reason(context, given.reason)
        return IsActiveResponse(result=given.active)

    async def StreamIsActive(self, request: ScaledObjectRef, context: Context) -> None:
        """The state at once and at each change. While it is unknown nothing is said: an error would cost up to a
        minute of KEDA's back-off, and the push that wakes the workload with it.
        """
        said: bool | None = None
        try:
            while True:  # each round is one version of what is believed of this ScaledObject
                workload = self._whose(request, context)
                turn = self._claims.turn(request.namespace, request.name)
                said = await self._push(workload, said, turn, context)
        except Refusal as refusal:
            await _abort(context, refusal)

    async def _push(self, workload: WorkloadKey, said: bool | None, turn: Turn, context: Context) -> bool | None:
        """Say the state where it is not what was `said`, until `turn` is over. Returns what was said last."""
        while not turn.over:
            entry = self._decisions.get(workload)
            if entry is None and not self._decisions.knows(workload):
                raise _undecided(workload)  # believed a moment before it is decided, or a moment after
            if entry is not None and entry.known and entry.active != said:
                said = entry.active
                await context.write(IsActiveResponse(result=said))
            await turn.until(self._decisions.changed(workload, entry))
        return said

    def _whose(self, ref: ScaledObjectRef, context: Context) -> WorkloadKey:
        try:
            return self._claims.whose(ref.namespace, ref.name, ref.scalerMetadata)
        except Unbelieved as doubted:
            if doubted.refused.detail:
                called = plain(f"{ref.namespace}/{ref.name}")
                self._refusals.warn(
                    called,
                    "call refused",
                    scaled_object=called,
                    peer=address(context.peer()),
                    detail=doubted.refused.detail,
                )
            raise of_doubt(doubted.refused) from None

    def _answer(self, ref: ScaledObjectRef, context: Context) -> Answer:
        return answer(self._decisions, self._whose(ref, context), self._now())


def _tell_reason(context: Context, reason: Reason) -> None:
    context.set_trailing_metadata(((REASON_KEY, reason.value),))


async def _abort(context: Context, refusal: Refusal) -> NoReturn:
    trailer = ((REASON_KEY, refusal.reason.value),) if refusal.reason else ()
    await context.abort(refusal.code, refusal.words, trailer)
