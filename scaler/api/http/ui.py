"""`/`: the live page for browsers, the list of paths for everybody else; and the page's files.

The files in `page/` are served as they lie there: no build, and no origin but our own, which the policy in the headers
makes a browser enforce. They are named by their content (ETag), so after an upgrade nobody sees an old one.

Worked example: a browser's `Accept: text/html,...` gets the page; curl's `*/*` gets the list of paths as text.

/api/v1/rows: the Board as the live page and `tidegate top` show it, and who answers.

The rows of one Board are written once, whoever asks and however many do. A browser that has them already is told so
with a 304: it sends the ETag it has seen.

Worked example: `{"now": 1000.0, "at": 999.5, "version": 7, "role": null, "unwell": [], "fleet": {...}, "workloads":
[{"namespace": "ai", "name": "chat", "state": "serving", "cluster": 2, "told": 3, ...}]}`, trouble first.

Does whoever asks have this version already? Then a 304 says so, and no body follows.

Compared as RFC 9110 13.1.2 has it: weakly, because a proxy that packs an answer makes a strong tag a weak one; any of
several tags will do, and `*` is whatever there is.

Worked example: to `If-None-Match: "old", W/"abc"` the answer of the tag `"abc"` is a 304.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from aiohttp import web

from exporter.model import WorkloadKey
from scaler.explain.outcome import OutcomeRow
from scaler.explain.rows import Ahead, by_trouble, fleet, row
from scaler.explain.summary import words_document
from scaler.model import Board

from .health import HealthState

# Styles and scripts of our own files alone, no frames around it, nothing sent anywhere else. `data:` is for nothing.
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked for each time, and answered with a 304 while nothing has changed
}
TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "json": "application/json",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    content_type: str
    etag: str


def assets() -> dict[str, Asset]:
    """The page's files by name, read once, and `words.json`, which is made of the tables of `scaler.explain.rows`."""
    found = {
        entry.name: entry.read_bytes() for entry in (files("scaler.api.http") / "page").iterdir() if entry.is_file()
    }
    found["words.json"] = json.dumps(words_document()).encode()
    return {name: _asset(name, body) for name, body in found.items() if name.rpartition(".")[2] in TYPES}


def routes(index: str) -> Sequence[web.RouteDef]:
    """index: what is said to whoever does not ask for HTML."""
    found = assets()

    async def front(request: web.Request) -> web.Response:
        if "text/html" not in request.headers.get("Accept", ""):
            return web.Response(text=index, headers={"Vary": "Accept"})
        answer = _answer(request, found["index.html"])
        answer.headers["Vary"] = "Accept"
        return answer

    return [web.get("/", front), *(web.get(f"/page/{name}", _server(asset)) for name, asset in found.items())]


def _server(asset: Asset) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def serve(request: web.Request) -> web.Response:
        return _answer(request, asset)

    return serve


def _answer(request: web.Request, asset: Asset) -> web.Response:
    headers = {**HEADERS, "ETag": asset.etag}
    if has_it(request, asset.etag):
        return web.Response(status=304, headers=headers)
    return web.Response(body=asset.body, content_type=asset.content_type, charset="utf-8", headers=headers)


def _asset(name: str, body: bytes) -> Asset:
    return Asset(body, TYPES[name.rpartition(".")[2]], f'"{hashlib.sha256(body).hexdigest()[:20]}"')


# What KEDA and the HPAs will do is worked out at most so often: of 5,000 workloads it takes half a second of a core.
AHEAD_S = 5.0
Outlooks = Callable[[], Callable[[], Iterable[OutcomeRow]]]


def nobody_sees() -> Callable[[], Iterable[OutcomeRow]]:
    return tuple


@dataclass(frozen=True, slots=True)
class Written:
    """The answer made from one Board: as it is, and packed."""

    etag: str
    text: bytes
    packed: bytes


class Rows:
    """board, health: asked at each GET. now: POSIX seconds.
    outlooks: of every workload as of now; worked out, in a thread, when what it returns is called.
    """

    def __init__(
        self,
        board: Callable[[], Board],
        health: HealthState,
        now: Callable[[], float],
        outlooks: Outlooks = nobody_sees,
    ) -> None:
        self._board, self._health, self._now, self._outlooks = board, health, now, outlooks
        self._ahead: dict[WorkloadKey, Ahead] = {}
        self._looked_at = float("-inf")
        self._written: Written | None = None
        self._writing = asyncio.Lock()

    async def answer(self, request: web.Request) -> web.Response:
        board, now = self._board(), self._now()
        unwell = [f"{name}: {said}" for name, said in self._health.ready(now).items() if said is not None]
        # A daemon that stands still has one Board for good, and says for how long by what is unwell.
        # Weak: packed and plain are the same rows in other bytes.
        etag = f'W/"{board.version}-{board.at!r}-{hash((self._health.role, *unwell)) & 0xFFFFFFFF:x}"'
        async with self._writing:  # ten browsers that ask at once are ten readers of one text
            written = self._written
            if written is None or written.etag != etag:
                if abs(now - self._looked_at) >= AHEAD_S:
                    self._looked_at = now
                    self._ahead = await asyncio.to_thread(_ahead, self._outlooks())
                written = await asyncio.to_thread(_write, board, etag, self._health.role, unwell, now, self._ahead)
                self._written = written
        headers = {"ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if has_it(request, etag):
            return web.Response(status=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return web.Response(body=written.packed, content_type="application/json", charset="utf-8", headers=headers)
        return web.Response(body=written.text, content_type="application/json", charset="utf-8", headers=headers)


def _ahead(seen: Callable[[], Iterable[OutcomeRow]]) -> dict[WorkloadKey, Ahead]:
    return {each.decision.workload: Ahead(str(each.outlook.code), each.outlook.sentences[0]) for each in seen()}


def _write(
    board: Board, etag: str, role: str | None, unwell: list[str], now: float, ahead: Mapping[WorkloadKey, Ahead]
) -> Written:
    rows = by_trouble(row(decision, now, ahead.get(key)) for key, decision in board.decisions.items())
    document = {
        "now": now,
        "at": board.at,
        "version": board.version,
        "role": role,
        "unwell": unwell,
        "fleet": fleet(rows).to_document(),
        "workloads": [each.to_document() for each in rows],
    }
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    return Written(etag, text, gzip.compress(text, compresslevel=1))


def has_it(request: web.Request, etag: str) -> bool:
    """etag: as it is sent, quotes and all."""
    opaque = etag.removeprefix("W/").strip('"')
    return any(each.value in (opaque, "*") for each in request.if_none_match or ())
