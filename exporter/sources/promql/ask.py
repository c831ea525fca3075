"""One POST of a form, with the session, the limits and the credentials of `HttpPages`.

A form and not a query string, because a list of families and a selector can be longer than a URL may be. Nothing here
reads what comes back.

Worked example: `await post(pages, "http://prometheus:9090/api/v1/query", Access(), {"query": "up[15s]"})` is
`(200, "OK", b'{"status":"success",…}')`, or a `Failure` if there is no whole answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

import aiohttp

from exporter.model import Access, Failure, FailureKind

from ..http import HttpPages, _authorization, _body, _failure, _Refusal


class Answer(NamedTuple):
    status: int
    reason: str
    body: bytes


async def post(pages: HttpPages, url: str, access: Access, form: Mapping[str, str]) -> Answer | Failure:
    """The server's answer, whatever its status, or why there is none."""
    limits = pages.limits
    try:
        async with asyncio.timeout(limits.timeout_s):
            return await _exchange(pages, url, access, form)
    except TimeoutError:
        return Failure(FailureKind.TIMEOUT, f"no complete answer within {limits.timeout_s:g} s")
    except _Refusal as refusal:
        return refusal.failure
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return _failure(error)


async def _exchange(pages: HttpPages, url: str, access: Access, form: Mapping[str, str]) -> Answer:
    request = pages._open().post(  # noqa: SLF001 - one session for two verbs
        url,
        data=form,
        headers={"Accept": "application/json", **_authorization(access)},
        ssl=pages._tls(access) if url.startswith("https:") else True,  # noqa: SLF001
        server_hostname=access.server_name,
        # A redirect could lead anywhere, and would take the token along.
        allow_redirects=False,
    )
    async with request as response:
        return Answer(response.status, response.reason or "", await _body(response, pages.limits.body_bytes))
