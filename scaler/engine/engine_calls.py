"""Calls `/sleep` and `/wake_up` of vLLM's engines: one call at a time for each engine, and never in the way of a sweep.

`sleep_tiers` says, after each sweep and each response, which calls are due; this makes them. A call that succeeded is
not repeated until a later response of the engine shows that it had no effect. One that failed is repeated: a wake after
half a second, then after twice as long each time, at most 5 s; a sleep after 5 s, at most 10 minutes.

`/sleep` is called with `mode=wait`: vLLM finishes the requests that it has begun, and keeps those that come later
until it is woken (since 0.17; earlier versions ignore the mode, end requests, and crash at one that comes later). A
wake is due once the engine shows that it sleeps, so it waits for no response to `/sleep`.

Worked example: a request waits for the engine at http://10.0.0.7:8000/metrics, which sleeps: `POST
http://10.0.0.7:8000/wake_up`, with the credentials of its scrapes. It answers after 0.3 s, which is its wake time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import structlog

from exporter.clock import Clock
from exporter.model import Credentials, Failure, FailureKind, Target, WorkloadKey
from exporter.scrape.request import internal
from exporter.sources.http import HttpResponse


class Action(StrEnum):
    """A call of an engine: the last part of its path in vLLM."""

    SLEEP = "sleep"
    WAKE_UP = "wake_up"


class EngineCall(NamedTuple):
    """A call that is due. read_at: POSIX seconds of the response that shows so. timeout_s: of the call."""

    workload: WorkloadKey
    target: Target
    action: Action
    read_at: float
    timeout_s: float


# url, credentials, seconds for the whole call.
Post: TypeAlias = Callable[[str, Credentials, float], Awaitable[HttpResponse | Failure]]
# The call, how long it took in seconds, and why it failed; None if it did not.
OnResult: TypeAlias = Callable[[EngineCall, float, Failure | None], None]

CALL_S = 60.0  # of a call without a configured timeout: the default of `sleep_mode.timeout`
_QUERIES = {Action.SLEEP: "level=1&mode=wait", Action.WAKE_UP: ""}
_FIRST_RETRY_S = {Action.SLEEP: 5.0, Action.WAKE_UP: 0.5}
_LAST_RETRY_S = {Action.SLEEP: 600.0, Action.WAKE_UP: 5.0}
_NOT_FOUND = "it needs --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1"


@dataclass(slots=True)
class _Engine:
    """The calls of one engine. Times in POSIX seconds.

    task, action: of the call that is made.
    done, done_at: the last that succeeded. failed, failures, retry_at: the last ones, if they failed.
    """

    task: asyncio.Task[None] | None = None
    action: Action | None = None
    done: Action | None = None
    done_at: float = float("-inf")
    failed: Action | None = None
    failures: int = 0
    retry_at: float = float("-inf")


class EngineCaller:
    """Makes calls until `run` is cancelled. post: None makes none."""

    def __init__(self, post: Post | None, clock: Clock, on_result: OnResult) -> None:
        self._post, self._clock, self._on_result = post, clock, on_result
        self._engines: dict[Target, _Engine] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._log = structlog.get_logger()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await asyncio.get_running_loop().create_future()  # until cancelled
            finally:
                self._tasks = None

    def adopt(self, other: EngineCaller) -> None:
        """Takes what is known of the engines, for a new configuration. A call under way ends with the other."""
        recent = self._clock.now() - _LAST_RETRY_S[Action.SLEEP]
        for target, engine in other._engines.items():
            engine.task = engine.action = None
            if max(engine.done_at, engine.retry_at) > recent:  # older ones may be of engines that are gone
                self._engines[target] = engine

    def forget(self, target: Target) -> None:
        """The target is gone."""
        engine = self._engines.pop(target, None)
        if engine is not None and engine.task is not None:
            engine.task.cancel()

    def order(self, calls: Iterable[EngineCall]) -> None:
        """Begins the calls that are due, if they are not made already."""
        for call in calls:
            engine = self._engines.setdefault(call.target, _Engine())
            if engine.task is not None:
                if (engine.action, call.action) != (Action.SLEEP, Action.WAKE_UP):
                    continue
                engine.task.cancel()
                engine.task = None
            if self._is_new(engine, call):
                self._begin(engine, call)

    def _is_new(self, engine: _Engine, call: EngineCall) -> bool:
        if engine.done is call.action and call.read_at <= engine.done_at:
            return False  # the response is older than the call
        return engine.failed is not call.action or self._clock.now() >= engine.retry_at

    def _begin(self, engine: _Engine, call: EngineCall) -> None:
        if self._tasks is None or self._post is None:
            return
        engine.action = call.action
        engine.task = self._tasks.create_task(self._make(self._post, engine, call), name=f"{call.action} {call.target}")

    async def _make(self, post: Post, engine: _Engine, call: EngineCall) -> None:
        began = self._clock.now()
        try:
            outcome = await post(url_of(call), call.target.access, call.timeout_s)
        except Exception as error:  # noqa: BLE001 - a bug in one call costs that call
            outcome = internal(error)
        now, failure = self._clock.now(), _failure(outcome)
        self._note(engine, call, failure, now)
        engine.task = engine.action = None
        self._on_result(call, now - began, failure)

    def _note(self, engine: _Engine, call: EngineCall, failure: Failure | None, now: float) -> None:
        action, fields = call.action, {"workload": str(call.workload), "target": call.target.named}
        if failure is None:
            if engine.failed is action:
                self._log.info("engine call recovered", call=str(action), **fields)
            engine.done, engine.done_at, engine.failed, engine.failures = action, now, None, 0
            return
        if engine.failed is not action:
            engine.failures = 0
            fields |= {"error": str(failure.kind), "detail": failure.detail}
            self._log.warning("engine call failed", call=str(action), **fields)
        wait_s = _FIRST_RETRY_S[action] * 2.0 ** min(engine.failures, 20)
        engine.failed, engine.failures = action, engine.failures + 1
        engine.retry_at = now + min(wait_s, _LAST_RETRY_S[action])


def url_of(call: EngineCall) -> str:
    """The URL of a call."""
    return endpoint_of(call.target.url, call.action, _QUERIES[call.action])


def endpoint_of(metrics_url: str, name: str, query: str = "") -> str:
    """The URL of an engine's endpoint: that of its metrics with another path."""
    parts = urlsplit(metrics_url)
    return urlunsplit((parts.scheme, parts.netloc, f"/{name}", query, ""))


def _failure(outcome: HttpResponse | Failure) -> Failure | None:
    if isinstance(outcome, Failure):
        return outcome
    if outcome.status == HTTPStatus.OK:
        return None
    why = f"; {_NOT_FOUND}" if outcome.status == HTTPStatus.NOT_FOUND else ""
    return Failure(FailureKind.STATUS, f"HTTP {outcome.status} {outcome.reason}".rstrip() + why)


def allowed(calls: Collection[EngineCall], *, leads: bool, wakes: bool) -> list[EngineCall]:
    """The calls that this replica makes. leads: it is the leader, or alone by configuration. wakes: no other is known
    to lead: to call an engine twice is harmless, and one that nobody wakes is not.
    """
    return [call for call in calls if leads or (wakes and call.action is Action.WAKE_UP)]
