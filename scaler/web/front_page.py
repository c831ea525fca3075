"""`/`: the live page for browsers, the list of paths for everybody else; and the page's files.

The files in `page/` are served as they lie there: no build, and no origin but our own, which the policy in the headers
makes a browser enforce. They are named by their content (ETag), so after an upgrade nobody sees an old one.

Worked example: a browser's `Accept: text/html,...` gets the page; curl's `*/*` gets the list of paths as text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from aiohttp import web

from ..rows import words_document
from .etags import has_it

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
    """The page's files by name, read once, and `words.json`, which is made of the tables of `scaler.rows`."""
    found = {entry.name: entry.read_bytes() for entry in (files("scaler.web") / "page").iterdir() if entry.is_file()}
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
