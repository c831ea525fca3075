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

Refused calls: the gRPC error that the caller gets, and the line that the operator finds in the log.

What a caller gets must teach a foreign tenant nothing. What the log gets must not grow with the calls: a client can
repeat a call, and invent names, thousands of times a second.

Worked example: a trigger that differs from its ScaledObject is called every 5 s. Each call gets PERMISSION_DENIED. The
log has one line every 10 minutes that names the difference, with `suppressed=119` from the second on. A client that
invents 10,000 names has 64 lines in 10 minutes.

Counts the open calls of each peer address, and refuses those above its quota. Pure but for the counts.

The quota follows from how KEDA calls. All calls come from one pod, KEDA's operator, and for each external trigger there
are at most four open at once: the streams StreamIsActive and StreamMetricSpec, one call of the poll, and one of the HPA
sync. 256 more are for tools, for health checks, and for the calls of triggers that were made a moment ago. So KEDA is
never refused, and one address cannot hold the calls of all.

Worked example: with 1,000 external triggers the quota of an address is 4 x 1000 + 256 = 4,256 calls. KEDA has 2,000
streams open and up to 2,000 polls. A pod that opens streams without end holds 4,256 of the server's 12,000 calls.

Above 1,468 triggers two such quotas are more than 12,000 calls. Then one address and KEDA together can reach the limit
of the whole server; only mutual TLS or a NetworkPolicy excludes such an address.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeAlias
from urllib.parse import unquote

import grpc

from exporter.model import WorkloadKey
from scaler.config.errors import shown
from scaler.model import Decision, Reason
from scaler.workloads import CallRejected, Doubt, RejectedCall
from scaler.workloads.caller_check import plain

from .authorization import Claims, Turn
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


class MetricAnswer(NamedTuple):
    """What GetMetrics and IsActive both say. told: replicas, as the HPA is to hear them."""

    told: int
    active: bool
    reason: Reason


def specs() -> GetMetricSpecResponse:
    return GetMetricSpecResponse(metricSpecs=[MetricSpec(metricName=METRIC, targetSize=1, targetSizeFloat=1.0)])


def answer(decisions: Decisions, workload: WorkloadKey, now: float) -> MetricAnswer:
    """The one rule of GetMetrics and IsActive. `now`: POSIX seconds, for the age in the error. Raises Refusal."""
    decision = decisions.get(workload)
    if decision is None:
        raise _undecided(workload)
    if decision.told is None:
        raise RpcError(grpc.StatusCode.UNAVAILABLE, _why_unknown(decision, now), decision.reason)
    return MetricAnswer(decision.told, decision.active, decision.reason)


def _undecided(workload: WorkloadKey) -> RpcError:
    words = f"{workload}: nothing is decided yet; the first readings are awaited"
    return RpcError(grpc.StatusCode.UNAVAILABLE, words, Reason.UNKNOWN)


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
        raise RpcError(grpc.StatusCode.INVALID_ARGUMENT, words)


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
        except RpcError as refusal:
            await _abort(context, refusal)
        _tell_reason(context, given.reason)
        # KEDA reads the float if it is above 0, else the integer: both must say the same.
        value = MetricValue(metricName=METRIC, metricValue=given.told, metricValueFloat=float(given.told))
        return GetMetricsResponse(metricValues=[value])

    async def IsActive(self, request: ScaledObjectRef, context: Context) -> IsActiveResponse:
        try:
            given = self._answer(request, context)
        except RpcError as refusal:
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
        except RpcError as refusal:
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
        except RejectedCall as doubted:
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

    def _answer(self, ref: ScaledObjectRef, context: Context) -> MetricAnswer:
        return answer(self._decisions, self._whose(ref, context), self._now())


def _tell_reason(context: Context, reason: Reason) -> None:
    context.set_trailing_metadata(((REASON_KEY, reason.value),))


async def _abort(context: Context, refusal: RpcError) -> NoReturn:
    trailer = ((REASON_KEY, refusal.reason.value),) if refusal.reason else ()
    await context.abort(refusal.code, refusal.words, trailer)


# (event, fields): writes one line.
Warn: TypeAlias = Callable[..., Any]

PERIOD_S: Final = 600.0
SUBJECTS: Final = 64

_CODES: Final = {
    Doubt.NOBODY: grpc.StatusCode.NOT_FOUND,
    Doubt.OTHERWISE: grpc.StatusCode.PERMISSION_DENIED,
    Doubt.WORDS: grpc.StatusCode.INVALID_ARGUMENT,
    Doubt.OBSERVED: grpc.StatusCode.FAILED_PRECONDITION,
    Doubt.UNSEEN: grpc.StatusCode.UNAVAILABLE,
}


class RpcError(Exception):
    """An answer that is an error."""

    def __init__(self, code: grpc.StatusCode, words: str, reason: Reason | None = None) -> None:
        super().__init__(words)
        self.code = code
        self.words = words
        self.reason = reason


def of_doubt(refused: CallRejected) -> RpcError:
    return RpcError(_CODES[refused.doubt], refused.sentence)


class Seldom:
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


CALLS_PER_TRIGGER: Final = 4
CALLS_BESIDE: Final = 256


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

    triggers: the number of external triggers that are known; None if that is not known. Then there is no quota: what
              is not known is not zero, and KEDA connects before the API server has been listed.
    """

    def __init__(self, triggers: Callable[[], int | None], refusals: Seldom) -> None:
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
        self._refusals.warn(peer, "calls of one peer refused", peer=peer, quota=quota)
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
