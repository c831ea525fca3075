"""Does whoever asks have this version already? Then a 304 says so, and no body follows.

Compared as RFC 9110 13.1.2 has it: weakly, because a proxy that packs an answer makes a strong tag a weak one; any of
several tags will do, and `*` is whatever there is.

Worked example: to `If-None-Match: "old", W/"abc"` the answer of the tag `"abc"` is a 304.
"""

from __future__ import annotations

from aiohttp import web


def has_it(request: web.Request, etag: str) -> bool:
    """etag: as it is sent, quotes and all."""
    opaque = etag.removeprefix("W/").strip('"')
    return any(each.value in (opaque, "*") for each in request.if_none_match or ())
