"""`/api/v1/explain`: why a number is what it is; `/api/v1/history`: what charts show. Copies are made in the loop,
documents in a thread.

Worked example: `GET /api/v1/explain/ai/chat?at=2026-11-22T10:00:00Z` is the decision that stood at ten, step by step.
`GET /api/v1/history/ai/chat?points=120&since=1800` has at most 120 points of the last half hour of the workload: its
load, the replicas that asks for, what was answered, what the cluster was told to run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import isfinite
from typing import Any, Protocol, TypeAlias

from aiohttp import web

from exporter.model import WorkloadKey
from scaler.model import Board

Document: TypeAlias = dict[str, Any]

LATEST = 4102444800.0  # the year 2100: whatever is later was meant in milliseconds
SINCE_S, LONGEST_S = 3600.0, 7 * 86400.0
POINTS, MOST_POINTS = 60, 480


class ExplainSource(Protocol):
    """Who remembers. What is returned makes the document, and may do so in a thread."""

    def history(self, board: Board, now: float, since: float, points: int) -> Callable[[], Document]: ...

    def explain(
        self,
        workload: WorkloadKey,
        board: Board,
        now: float,
        at: float | None,
        follows: str | None,
        controller: Document | None,
    ) -> Callable[[], Document] | None: ...


class BadQueryError(ValueError):
    """What somebody asked cannot be answered; the words are for them."""


@dataclass(frozen=True, slots=True)
class ExplainHandler:
    """witness:   None while nothing is decided yet. now: POSIX seconds.
    follows:    HOST:PORT of the replica of Tidegate whose Board is repeated; None: our own is the Board.
    controller: what KEDA and the HPA do with the Board's number, by whoever watches them: the last step of a chain, as
                a document of the shape of `explain.steps.Step`; None: nobody knows.
    """

    board: Callable[[], Board]
    witness: Callable[[], ExplainSource | None]
    now: Callable[[], float]
    follows: Callable[[], str | None] = lambda: None
    controller: Callable[[WorkloadKey], Document | None] = lambda _: None

    def routes(self) -> Sequence[web.RouteDef]:
        return [
            web.get("/api/v1/explain/{namespace}/{name}", self._explained),
            web.get("/api/v1/history", self._histories),
            web.get("/api/v1/history/{namespace}/{name}", self._history),
        ]

    async def _explained(self, request: web.Request) -> web.Response:
        key, witness = asked_for(request), self.witness()
        try:
            at = moment(request.query["at"]) if "at" in request.query else None
        except BadQueryError as bad:
            return _error(400, str(bad))
        if witness is None:
            return _error(503, "nothing has been decided yet: Tidegate is starting")
        follows, controller = self.follows(), self.controller(key)
        made = witness.explain(key, self.board(), self.now(), at, follows, controller)
        if made is None:
            return _error(404, unknown(key))
        return web.json_response(text=await asyncio.to_thread(lambda: _text(made())))

    async def _histories(self, request: web.Request) -> web.Response:
        try:
            since, points = _span(request.query, POINTS)
        except BadQueryError as bad:
            return _error(400, str(bad))
        return await self._charted(self.board(), since, points)

    async def _history(self, request: web.Request) -> web.Response:
        board, key = self.board(), asked_for(request)
        try:
            since, points = _span(request.query, MOST_POINTS)
        except BadQueryError as bad:
            return _error(400, str(bad))
        decision = board.get(key)
        if decision is None:
            return _error(404, unknown(key))
        return await self._charted(replace(board, decisions={key: decision}), since, points)

    async def _charted(self, board: Board, since: float, points: int) -> web.Response:
        witness, now = self.witness(), self.now()
        if witness is None:
            return web.json_response({"now": now, "workloads": []})
        made = witness.history(board, now, since, points)
        return web.json_response(text=await asyncio.to_thread(lambda: _text(made())))


def asked_for(request: web.Request) -> WorkloadKey:
    path = request.match_info
    return WorkloadKey(path["namespace"], path["name"], request.query.get("trigger", ""))


def unknown(key: WorkloadKey) -> str:
    return f"{key}: no such workload on the Board"


def moment(text: str) -> float:
    """POSIX seconds of a number, or of a moment as RFC 3339 writes it. Raises BadQueryError."""
    wanted = "at: must be POSIX seconds or a moment such as 2026-11-22T10:00:00Z"
    try:
        # In a query a plus that nobody has escaped is a space; a moment's only one is before its offset.
        at = float(text) if "T" not in text.upper() else datetime.fromisoformat(text.replace(" ", "+")).timestamp()
    except (ValueError, OverflowError):
        raise BadQueryError(f"{wanted}, got {text}") from None
    if "T" in text.upper() and datetime.fromisoformat(text.replace(" ", "+")).tzinfo is None:
        raise BadQueryError(f"{wanted}: {text} does not say whose clock is meant; add Z or an offset")
    if not 0.0 <= at < LATEST:
        raise BadQueryError(f"{wanted}, got {text}")
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


def _error(status: int, words: str) -> web.Response:
    return web.json_response({"error": words}, status=status)
