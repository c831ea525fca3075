"""Serves the live page, its files, and `/api/v1/rows`, which the page and `tidegate top` show.

The files in `page/` are served unchanged: no build, and no other origin, which the policy in the headers makes a
browser enforce. Their ETag is a hash of their content, so a browser never shows an old file after an upgrade.

The rows of one Board are encoded once for all readers. A reader that sends the ETag of the current rows gets a 304.

Worked example: a browser's `Accept: text/html,...` gets the page; curl's `*/*` gets the list of paths as text.
`/api/v1/rows` is `{"now": 1000.0, "at": 999.5, "version": 7, "role": null, "unwell": [], "gpus_unmatched": [],
"scrapes": {...}, "fleet": {...}, "workloads": [{"namespace": "ai", "name": "chat", "state": "serving", "cluster": 2,
"published": 3, ...}]}`, problems first.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from aiohttp import web

from exporter.model import WorkloadKey
from exporter.scrape.loop import Delays
from scaler.explain.outcome import OutcomeRow, no_node
from scaler.explain.rows import NOWHERE, NextOutcome, Placement, by_severity, fleet, row
from scaler.explain.summary import words_document
from scaler.model import Board
from scaler.workloads.unmatched import UnmatchedGpus

from .health import HealthState

# Styles and scripts from this origin alone, no frames, nothing sent elsewhere.
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # revalidated each time; unchanged files get a 304
}
TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "json": "application/json",
    "svg": "image/svg+xml",
}
# Controller outcomes are computed at most this often: for 5,000 workloads that takes half a second.
OUTCOMES_S = 5.0


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the page."""

    body: bytes
    content_type: str
    etag: str


def assets() -> dict[str, Asset]:
    """The page's files by name, and `words.json`, made of the tables of `scaler.explain.summary`."""
    found = {
        entry.name: entry.read_bytes() for entry in (files("scaler.api.http") / "page").iterdir() if entry.is_file()
    }
    found["words.json"] = json.dumps(words_document()).encode()
    return {name: _asset(name, body) for name, body in found.items() if name.rpartition(".")[2] in TYPES}


def routes(index: str) -> Sequence[web.RouteDef]:
    """index: the text for clients that do not accept HTML."""
    found = assets()

    async def front(request: web.Request) -> web.Response:
        if "text/html" not in request.headers.get("Accept", ""):
            return web.Response(text=index, headers={"Vary": "Accept"})
        response = _file(request, found["index.html"])
        response.headers["Vary"] = "Accept"
        return response

    return [web.get("/", front), *(web.get(f"/page/{name}", _server(asset)) for name, asset in found.items())]


def _server(asset: Asset) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def serve(request: web.Request) -> web.Response:
        return _file(request, asset)

    return serve


def _file(request: web.Request, asset: Asset) -> web.Response:
    headers = {**HEADERS, "ETag": asset.etag}
    if is_current(request, asset.etag):
        return web.Response(status=304, headers=headers)
    return web.Response(body=asset.body, content_type=asset.content_type, charset="utf-8", headers=headers)


def _asset(name: str, body: bytes) -> Asset:
    return Asset(body, TYPES[name.rpartition(".")[2]], f'"{hashlib.sha256(body).hexdigest()[:20]}"')


@dataclass(frozen=True, slots=True)
class RowSources:
    """Gives the rows their data besides the Board. The defaults are those of a daemon without a cluster.

    outcomes:   copies the cluster; what it returns computes the outcomes, and is called in a thread.
    unmatched:  the GPUs that match no workload; None while unknown.
    placements: what each workload scales, and its nodes.
    links:      URLs by name; None where not configured.
    delays:     late and skipped scrapes since the start.
    scrapes:    number of scrapes made of the present targets.
    """

    outcomes: Callable[[], Callable[[], Iterable[OutcomeRow]]] = lambda: tuple
    unmatched: Callable[[], Sequence[UnmatchedGpus] | None] = lambda: None
    placements: Callable[[], Mapping[WorkloadKey, Placement]] = dict
    links: Callable[[], Mapping[str, str | None]] = dict
    delays: Delays = field(default_factory=Delays)
    scrapes: Callable[[], int] = lambda: 0


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """The response made from one Board. gzipped: the same text."""

    etag: str
    text: bytes
    gzipped: bytes


class Rows:
    """Answers `/api/v1/rows`.

    now: POSIX seconds.
    """

    def __init__(
        self,
        board: Callable[[], Board],
        health: HealthState,
        now: Callable[[], float],
        sources: RowSources,
    ) -> None:
        self._board, self._health, self._now, self._sources = board, health, now, sources
        self._release = version("tidegate")
        self._gpus_unmatched: list[dict[str, Any]] | None = None
        self._ahead: dict[WorkloadKey, NextOutcome] = {}
        self._placed: Mapping[WorkloadKey, Placement] = {}
        self._outcomes_at = float("-inf")
        self._encoded: EncodedRows | None = None
        self._encoding = asyncio.Lock()

    async def get(self, request: web.Request) -> web.Response:
        board, now = self._board(), self._now()
        unwell = [f"{name}: {problem}" for name, problem in self._health.ready(now).items() if problem is not None]
        # The Board of a daemon that makes no more ticks stays the same, but its health changes.
        # Weak, because gzipped and plain bytes differ.
        etag = f'W/"{board.version}-{board.at!r}-{hash((self._health.role, *unwell)) & 0xFFFFFFFF:x}"'
        async with self._encoding:  # concurrent readers wait for one encoding
            encoded = self._encoded
            if encoded is None or encoded.etag != etag:
                if abs(now - self._outcomes_at) >= OUTCOMES_S:
                    self._outcomes_at = now
                    unmatched = self._sources.unmatched()
                    gpus = None if unmatched is None else [each.to_document() for each in unmatched]
                    self._gpus_unmatched = gpus
                    self._placed = self._sources.placements()
                    self._ahead = await asyncio.to_thread(_ahead_of, self._sources.outcomes())
                head = {
                    "now": now,
                    "at": board.at,
                    "version": board.version,
                    "release": self._release,
                    "role": self._health.role,
                    "unwell": unwell,
                    "gpus_unmatched": self._gpus_unmatched,
                    "scrapes": _scrapes(self._sources),
                    "links": self._sources.links(),
                }
                encoded = await asyncio.to_thread(_encode, board, etag, head, now, self._ahead, self._placed)
                self._encoded = encoded
        headers = {"ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if is_current(request, etag):
            return web.Response(status=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return web.Response(body=encoded.gzipped, content_type="application/json", charset="utf-8", headers=headers)
        return web.Response(body=encoded.text, content_type="application/json", charset="utf-8", headers=headers)


def _ahead_of(outcomes: Callable[[], Iterable[OutcomeRow]]) -> dict[WorkloadKey, NextOutcome]:
    return {
        each.decision.workload: NextOutcome(
            str(each.outcome.code),
            each.outcome.sentences[0],
            "" if each.facts.unscheduled is None else no_node(each.facts.unscheduled),
        )
        for each in outcomes()
    }


def _scrapes(sources: RowSources) -> dict[str, int]:
    """Since the start of the process; `made` is of the present targets."""
    skipped = {f"skipped_{reason}": count for reason, count in sources.delays.skipped.items()}
    return {"made": sources.scrapes(), "late": sources.delays.late, **skipped}


def _encode(
    board: Board,
    etag: str,
    head: Mapping[str, Any],
    now: float,
    ahead: Mapping[WorkloadKey, NextOutcome],
    placed: Mapping[WorkloadKey, Placement],
) -> EncodedRows:
    """head: the document without its workloads."""
    rows = by_severity(
        row(decision, now, ahead.get(key), placed.get(key, NOWHERE)) for key, decision in board.decisions.items()
    )
    document = {
        **head,
        "fleet": fleet(rows).to_document(),
        "workloads": [each.to_document() for each in rows],
    }
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    return EncodedRows(etag, text, gzip.compress(text, compresslevel=1))


def is_current(request: web.Request, etag: str) -> bool:
    """Whether the client has this version: then it gets a 304. etag: with its quotes.

    RFC 9110 13.1.2: the comparison is weak, because a proxy that compresses a response makes a strong tag weak; any of
    several tags matches, and `*` is any version. To `If-None-Match: "old", W/"abc"` the response of `"abc"` is a 304.
    """
    opaque = etag.removeprefix("W/").strip('"')
    return any(each.value in (opaque, "*") for each in request.if_none_match or ())
