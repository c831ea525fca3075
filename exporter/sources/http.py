"""HTTP text pages: one session for all; the bytes of a page, or a `Failure` that says why there are none.

A page may be slow, endless, compressed without end, broken in the middle or guarded; each costs its own scrape and
nothing more. Bytes are counted after decompression, because the cap guards memory, not the network. Half a page is
never handed on where HTTP shows that it is half: a body shorter than its Content-Length, chunks without an end, a gzip
stream without its trailer. Where only closing marks the end (HTTP/1.0 without Content-Length) a page cut between two
lines looks whole, and is taken for it. Nothing here reads what a page says, and no secret, nor a URL that might hold
one, gets into a `Failure`.

Worked example: `await pages.fetch("http://10.0.0.7:9400/metrics", Access())` is the page as `bytes`, or
`Failure(REFUSED, "10.0.0.7:9400: Connection refused")`.

How to be let in, and what a server's refusal means: shared by every source that opens connections.

Files are read at each use, because kubelet rotates them. No secret gets into a `Failure`.

Worked example: `secret("/var/run/secrets/token")` is its one line of text, or raises a `Refused` with
`Failure(CREDENTIALS, "/var/run/secrets/token: No such file or directory")`.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import zlib
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import aiohttp

from exporter.budget import BODIES, Budget, BudgetShare
from exporter.model import Credentials, Failure, FailureKind

HEADERS = {
    # Prometheus text is what every page speaks; OpenMetrics is taken where it is all there is.
    "Accept": "text/plain;version=0.0.4;q=1.0, application/openmetrics-text;version=1.0.0;q=0.5, */*;q=0.1",
    "Accept-Encoding": "gzip",
    "User-Agent": "tidegate",
}
# TLS contexts kept, the last used ones: a reload may name other files each time.
MAX_CONTEXTS = 64
Files: TypeAlias = tuple[str | None, str | None, str | None, bool]
GZIP_WBITS = 16 + zlib.MAX_WBITS
OK = 200

Given = TypeVar("Given")


class HttpResponse(NamedTuple):
    """What a server said, whatever it meant by it."""

    status: int
    reason: str
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """timeout_s: seconds of the wall for one whole page. body_bytes: the largest page believed, decompressed."""

    timeout_s: float
    body_bytes: int


@dataclass(slots=True)
class HttpPages:
    """A keep-alive session and the TLS contexts made so far. Close it when done."""

    limits: HttpLimits
    _bodies: Budget = field(default_factory=lambda: Budget(0))
    _session: aiohttp.ClientSession | None = None
    _contexts: OrderedDict[Files, tuple[object, ssl.SSLContext]] = field(default_factory=OrderedDict)

    async def fetch(self, url: str, access: Credentials) -> bytes | Failure:
        """The page's bytes, or why there are none."""
        return await self._within_limits(self._get(url, access, self.limits.body_bytes))

    async def get(self, url: str, access: Credentials) -> HttpResponse | Failure:
        """The whole answer, whatever its status, or why there is none. It is asked for as JSON."""
        return await self._within_limits(self._get_answer(url, access, self.limits.body_bytes))

    async def post(self, url: str, access: Credentials, form: Mapping[str, str]) -> HttpResponse | Failure:
        """The whole answer to a form, whatever its status, or why there is none.

        A question that is longer than a URL may be is put so; the answer is asked for as JSON.
        """
        return await self._within_limits(self._post(url, access, form, self.limits.body_bytes))

    async def _within_limits(self, answer: Coroutine[Any, Any, Given | Failure]) -> Given | Failure:
        limit = self.limits.timeout_s
        try:
            async with asyncio.timeout(limit):
                return await answer
        except TimeoutError:
            return Failure(FailureKind.TIMEOUT, f"no complete answer within {limit:g} s")
        except ScrapeRejected as refusal:
            return refusal.failure
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _failure(error)

    async def _get(self, url: str, access: Credentials, most: int) -> bytes | Failure:
        async with self._open().get(url, headers=_authorization(access), **self._way(url, access)) as response:
            if response.status != OK:
                return Failure(FailureKind.STATUS, f"HTTP {response.status} {response.reason or ''}".rstrip())
            return await self._body(response, most)

    async def _get_answer(self, url: str, access: Credentials, most: int) -> HttpResponse:
        headers = {"Accept": "application/json", **_authorization(access)}
        async with self._open().get(url, headers=headers, **self._way(url, access)) as response:
            return HttpResponse(response.status, response.reason or "", await self._body(response, most))

    async def _post(self, url: str, access: Credentials, form: Mapping[str, str], most: int) -> HttpResponse:
        headers = {"Accept": "application/json", **_authorization(access)}
        async with self._open().post(url, data=form, headers=headers, **self._way(url, access)) as response:
            return HttpResponse(response.status, response.reason or "", await self._body(response, most))

    async def _body(self, response: aiohttp.ClientResponse, most: int) -> bytes:
        self._bodies.total = BODIES * self.limits.body_bytes
        with self._bodies.share() as share:
            return await _body(response, most, share)

    def _way(self, url: str, access: Credentials) -> dict[str, Any]:
        return {
            "ssl": self._tls(access) if url.startswith("https:") else True,
            "server_hostname": access.server_name,
            # A redirect could lead anywhere, and would take the token along.
            "allow_redirects": False,
        }

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # The scrape loop bounds concurrency; a second bound here would only make time-outs of waiting.
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=10),
                headers=HEADERS,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                # aiohttp takes a gzip stream that was cut short for a whole one.
                auto_decompress=False,
            )
        return self._session

    def _tls(self, access: Credentials) -> ssl.SSLContext:
        """A context for these files, made again when one of them has changed (certificates rotate)."""
        files = [f for f in (access.ca_file, access.certificate_file, access.key_file) if f]
        try:
            stamp = [(s.st_mtime_ns, s.st_ino, s.st_size) for s in map(os.stat, files)]
        except OSError as error:
            raise unusable(error.filename, error) from error
        # Not by `access`: a context does not depend on tokens, and each with the system's certificates takes 1 MB.
        of = (access.ca_file, access.certificate_file, access.key_file, access.insecure_skip_verify)
        made = self._contexts.get(of)
        if made is None or made[0] != stamp:
            made = self._contexts[of] = (stamp, tls_context(access))
        self._contexts.move_to_end(of)
        while len(self._contexts) > MAX_CONTEXTS:
            self._contexts.popitem(last=False)
        return made[1]

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _body(response: aiohttp.ClientResponse, most: int, share: BudgetShare) -> bytes:
    """The whole body, decompressed and at most `most` bytes and what `share` may grow to, or a refusal."""
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding not in {"identity", "gzip", "x-gzip"}:
        raise ScrapeRejected(FailureKind.UNREADABLE, f"Content-Encoding {encoding!r}, though only gzip was asked for")
    gzip = zlib.decompressobj(GZIP_WBITS) if encoding != "identity" else None
    body, empty = bytearray(), True
    async for chunk in response.content.iter_any():
        empty = False
        body += chunk if gzip is None else _unpacked(gzip, chunk, most + 1 - len(body))
        if len(body) > most:
            raise ScrapeRejected(FailureKind.TOO_LARGE, f"more than {most} bytes (scrape.body_limit)")
        if not share.resize(len(body)):
            raise ScrapeRejected(
                FailureKind.TOO_LARGE, f"{len(body)} bytes so far, and other large responses take the rest"
            )
    if gzip is not None and not empty and (not gzip.eof or gzip.unused_data):
        raise ScrapeRejected(FailureKind.REFUSED, "the gzip stream of the page does not end where the page ends")
    if gzip is None and not _framed(response) and not body.endswith(b"\n") and not empty:
        # The format wants a line feed after the last line, and `waiting 12` may have been going to be `waiting 123`.
        raise ScrapeRejected(
            FailureKind.REFUSED, "the connection closed in the middle of a line, of a page without a length"
        )
    return bytes(body)


def _framed(response: aiohttp.ClientResponse) -> bool:
    return "Content-Length" in response.headers or "Transfer-Encoding" in response.headers


def _unpacked(gzip: zlib._Decompress, chunk: bytes, most: int) -> bytes:
    """At most `most` bytes: what a bomb holds beyond them is never unpacked."""
    try:
        return gzip.decompress(chunk, most)
    except zlib.error as error:
        raise ScrapeRejected(FailureKind.UNREADABLE, f"the page is not the gzip it says it is: {error}") from error


def _authorization(access: Credentials) -> Mapping[str, str]:
    if access.bearer_file:
        return {"Authorization": f"Bearer {secret(access.bearer_file)}"}
    if access.username is not None and access.password_file:
        pair = f"{access.username}:{secret(access.password_file)}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _failure(error: Exception) -> Failure:
    """What the client's exception means, without the URL and the objects that its own words may show."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return Failure(FailureKind.TLS, f"{_place(error)}: certificate not believed: {tls_words(error)}")
        case aiohttp.ClientSSLError():
            return Failure(FailureKind.TLS, f"{_place(error)}: {tls_words(error)}")
        case ssl.SSLError() | aiohttp.ClientOSError(__cause__=ssl.SSLError()):
            return Failure(FailureKind.TLS, f"the server ended the TLS connection: {tls_words(error)}")
        case aiohttp.ClientConnectorError():
            return Failure(FailureKind.REFUSED, f"{_place(error)}: {os_words(error.os_error)}")
        case aiohttp.ServerDisconnectedError():
            return Failure(FailureKind.REFUSED, "the server closed the connection without a whole answer")
        case aiohttp.ClientPayloadError():
            return Failure(FailureKind.REFUSED, "the connection broke in the middle of the page")
        case aiohttp.ClientResponseError():
            return Failure(FailureKind.REFUSED, f"the answer is not HTTP: {error.message.splitlines()[0]}")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return Failure(FailureKind.REFUSED, "the address is not a URL that can be asked")
        case OSError():
            return Failure(FailureKind.REFUSED, os_words(error))
    return Failure(FailureKind.REFUSED, str(error) or type(error).__name__)


def _place(error: aiohttp.ClientConnectorError) -> str:
    return f"{error.host}:{error.port}"


class ScrapeRejected(Exception):  # noqa: N818 - it is a verdict on its way out, no error of ours
    """The scrape ends here, with this failure."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.failure = Failure(kind, detail)


def unusable(file: str, error: Exception) -> ScrapeRejected:
    reason = error.strerror if isinstance(error, OSError) else None
    return ScrapeRejected(FailureKind.CREDENTIALS, f"{file}: {reason or error}")


def tls_context(access: Credentials) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise unusable(str(access.ca_file), error) from error
    if access.certificate_file:
        try:
            # Without a password OpenSSL would ask the terminal for that of an encrypted key, and wait.
            context.load_cert_chain(access.certificate_file, access.key_file, password="")
        except (OSError, ssl.SSLError) as error:
            raise unusable(f"{access.certificate_file} with {access.key_file}", error) from error
    if access.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def secret(file: str) -> str:
    """A token or password; read each time, because kubelet rotates them (about once an hour)."""
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise unusable(file, error) from error
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable():
        raise ScrapeRejected(FailureKind.CREDENTIALS, f"{file}: must hold one line of text")
    return text


def tls_words(error: Exception) -> str:
    cause = getattr(error, "certificate_error", None) or error.__cause__ or error
    # OpenSSL's reasons look like TLSV13_ALERT_CERTIFICATE_REQUIRED.
    reason = (getattr(cause, "reason", None) or str(cause)).lower().replace("_", " ")
    return getattr(cause, "verify_message", None) or reason


def os_words(error: OSError) -> str:
    # asyncio and the resolver put their own words into strerror, and negative numbers into errno.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
