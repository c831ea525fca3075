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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from aiohttp import web

from exporter.model import WorkloadKey

from ..board import Board
from ..outlook import Seen
from ..rows import Ahead, by_trouble, fleet, row
from .etags import has_it
from .health import Health

# What KEDA and the HPAs will do is worked out at most so often: of 5,000 workloads it takes half a second of a core.
AHEAD_S = 5.0
Outlooks = Callable[[], Callable[[], Iterable[Seen]]]


def nobody_sees() -> Callable[[], Iterable[Seen]]:
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
        health: Health,
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


def _ahead(seen: Callable[[], Iterable[Seen]]) -> dict[WorkloadKey, Ahead]:
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
