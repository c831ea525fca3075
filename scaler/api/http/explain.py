"""Serves `/api/v1/explain`, why a number is what it is, and `/api/v1/history`, points for charts.

Data is copied in the event loop; documents are built in a thread.

Worked example: `GET /api/v1/explain/ai/chat?at=2026-11-22T10:00:00Z` explains the decision that held at ten, step by
step. `GET /api/v1/history/ai/chat?points=120&since=1800` has at most 120 points of the last half hour: load, demand,
decided replicas, replicas that the cluster should run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

from aiohttp import web

from exporter.model import WorkloadKey
from scaler.model import Board

if TYPE_CHECKING:
    from scaler.explain.document import DecisionExplainer
    from scaler.explain.outcome_inputs import ControllerOutcome

Document: TypeAlias = dict[str, Any]

LATEST = 4102444800.0  # the year 2100: a larger number is in milliseconds
SINCE_S, LONGEST_S = 3600.0, 7 * 86400.0
POINTS, MOST_POINTS = 60, 480


class BadQueryError(ValueError):
    """A query parameter is invalid; the message names its key."""


@dataclass(frozen=True, slots=True)
class ExplainHandler:
    """Answers explain and history.

    source:     None until the first decision.
    now:        POSIX seconds.
    follows:    HOST:PORT of the leader, if this replica repeats its Board; None if the Board is its own.
    controller: what KEDA and the HPA do with the number, the last step of the chain; None if unknown.
    """

    board: Callable[[], Board]
    source: Callable[[], DecisionExplainer | None]
    now: Callable[[], float]
    follows: Callable[[], str | None] = lambda: None
    controller: Callable[[WorkloadKey], ControllerOutcome | None] = lambda _: None

    def routes(self) -> Sequence[web.RouteDef]:
        return [
            web.get("/api/v1/explain/{namespace}/{name}", self._explained),
            web.get("/api/v1/history", self._histories),
            web.get("/api/v1/history/{namespace}/{name}", self._history),
        ]

    async def _explained(self, request: web.Request) -> web.Response:
        key, source = key_of(request), self.source()
        try:
            at = moment(request.query["at"]) if "at" in request.query else None
        except BadQueryError as bad:
            return _error(400, str(bad))
        if source is None:
            return _error(503, "nothing has been decided yet: Tidegate is starting")
        follows, controller = self.follows(), self.controller(key)
        build = source.explain(key, self.board(), self.now(), at, follows, controller)
        if build is None:
            return _error(404, unknown(key))
        return web.json_response(text=await asyncio.to_thread(lambda: _text(build())))

    async def _histories(self, request: web.Request) -> web.Response:
        try:
            since, points = _span(request.query, POINTS)
        except BadQueryError as bad:
            return _error(400, str(bad))
        return await self._charted(self.board(), since, points)

    async def _history(self, request: web.Request) -> web.Response:
        board, key = self.board(), key_of(request)
        try:
            since, points = _span(request.query, MOST_POINTS)
        except BadQueryError as bad:
            return _error(400, str(bad))
        decision = board.get(key)
        if decision is None:
            return _error(404, unknown(key))
        return await self._charted(replace(board, decisions={key: decision}), since, points)

    async def _charted(self, board: Board, since: float, points: int) -> web.Response:
        source, now = self.source(), self.now()
        if source is None:
            return web.json_response({"now": now, "workloads": []})
        build = source.history(board, now, since, points)
        return web.json_response(text=await asyncio.to_thread(lambda: _text(build())))


def key_of(request: web.Request) -> WorkloadKey:
    path = request.match_info
    return WorkloadKey(path["namespace"], path["name"], request.query.get("trigger", ""))


def unknown(key: WorkloadKey) -> str:
    return f"{key}: no such workload on the Board"


def moment(text: str) -> float:
    """POSIX seconds of a number or an RFC 3339 time. Raises BadQueryError."""
    bound = "at: must be POSIX seconds or a time such as 2026-11-22T10:00:00Z"
    try:
        # An unescaped plus in a query is a space; the only one in a time is before its offset.
        at = float(text) if "T" not in text.upper() else datetime.fromisoformat(text.replace(" ", "+")).timestamp()
    except (ValueError, OverflowError):
        raise BadQueryError(f"{bound}, got {text}") from None
    if "T" in text.upper() and datetime.fromisoformat(text.replace(" ", "+")).tzinfo is None:
        raise BadQueryError(f"{bound}: {text} has no offset; add Z or an offset")
    if not 0.0 <= at < LATEST:
        raise BadQueryError(f"{bound}, got {text}")
    return at


def _span(query: Mapping[str, str], points: int) -> tuple[float, int]:
    since = _number(query, "since", SINCE_S, 1.0, LONGEST_S)
    return since, int(_number(query, "points", float(points), 1.0, float(MOST_POINTS)))


def _number(query: Mapping[str, str], key: str, default: float, least: float, most: float) -> float:
    if key not in query:
        return default
    try:
        value = float(query[key])
    except ValueError:
        value = float("nan")
    if not isfinite(value) or not least <= value <= most:
        raise BadQueryError(f"{key}: must be a number from {least:g} to {most:g}, got {query[key]}")
    return value


def _text(document: Document) -> str:
    return json.dumps(document, allow_nan=False)


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
