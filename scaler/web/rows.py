"""/api/v1/rows: the Board as the live page and `tidegate top` show it, and who answers.

The rows of one Board are written once, whoever asks and however many do. A browser that has them already is told so
with a 304: it sends the ETag it has seen.

Worked example: `{"now": 1000.0, "at": 999.5, "version": 7, "role": null, "unwell": [], "fleet": {...}, "workloads":
[{"namespace": "ai", "name": "chat", "state": "serving", "cluster": 2, "told": 3, ...}]}`, trouble first.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from ..board import Board
from ..rows import by_trouble, fleet, row
from .etags import has_it
from .health import Health


@dataclass(frozen=True, slots=True)
class Written:
    """The answer made from one Board: as it is, and packed."""

    etag: str
    text: bytes
    packed: bytes


class Rows:
    """board, health: asked at each GET. now: POSIX seconds."""

    def __init__(self, board: Callable[[], Board], health: Health, now: Callable[[], float]) -> None:
        self._board, self._health, self._now = board, health, now
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
                written = await asyncio.to_thread(_write, board, etag, self._health.role, unwell, now)
                self._written = written
        headers = {"ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if has_it(request, etag):
            return web.Response(status=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return web.Response(body=written.packed, content_type="application/json", charset="utf-8", headers=headers)
        return web.Response(body=written.text, content_type="application/json", charset="utf-8", headers=headers)


def _write(board: Board, etag: str, role: str | None, unwell: list[str], now: float) -> Written:
    rows = by_trouble(row(decision, now) for decision in board.decisions.values())
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
