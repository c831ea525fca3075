"""Fetches HTTP responses with one session: returns the bytes, or a `Failure` that says why there are none.

A response may be slow, endless, a compression bomb, broken in the middle or protected; each costs its own scrape and
nothing more. Bytes are counted after decompression, because the limit guards memory and not the network. A truncated
body is never returned if HTTP shows that it is truncated: shorter than its Content-Length, chunks without an end, a
gzip stream without its trailer. Where only closing the connection marks the end (HTTP/1.0 without Content-Length), a
body that is cut between two lines cannot be detected. Credentials are read at each use, because kubelet rotates their
files. A `Failure` contains no secret, and no URL, which might hold one.

Worked example: `await pages.fetch("http://10.0.0.7:9400/metrics", Credentials())` returns the page as `bytes`, or
`Failure(REFUSED, "10.0.0.7:9400: Connection refused")`.
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

from .plain_http import PlainClient

HEADERS = {
    # Every exporter offers Prometheus text; OpenMetrics is accepted where it is the only format.
    "Accept": "text/plain;version=0.0.4;q=1.0, application/openmetrics-text;version=1.0.0;q=0.5, */*;q=0.1",
    "Accept-Encoding": "gzip",
    "User-Agent": "tidegate",
}
# Bodies of more than this part of the limit share a budget, which the general client keeps; as many smaller ones as are
# requested at once by default take half of what it has.
SMALL = 16
# Cached TLS contexts, the last used ones: a reload may name other files each time.
MAX_CONTEXTS = 64
_ContextKey: TypeAlias = tuple[str | None, str | None, str | None, bool]
GZIP_WBITS = 16 + zlib.MAX_WBITS
OK = 200

Value = TypeVar("Value")


class HttpResponse(NamedTuple):
    status: int
    reason: str
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """timeout_s: wall-clock seconds for one whole response. body_bytes: the largest accepted body, decompressed."""

    timeout_s: float
    body_bytes: int


@dataclass(slots=True)
class HttpPages:
    """Two clients with their connections: one for ordinary responses, and one for all others. Close it when done."""

    limits: HttpLimits
    _bodies: Budget = field(default_factory=lambda: Budget(0))
    _session: aiohttp.ClientSession | None = None
    _plain: PlainClient = field(default_factory=lambda: PlainClient(HEADERS))
    _contexts: OrderedDict[_ContextKey, tuple[object, ssl.SSLContext]] = field(default_factory=OrderedDict)

    async def fetch(self, url: str, access: Credentials) -> bytes | Failure:
        """The body of a response with status 200, or why there is none."""
        return await self._within_limits(self._get_page(url, access))

    async def get(self, url: str, access: Credentials) -> HttpResponse | Failure:
        """A response of any status to a request for JSON, or why there is none."""
        return await self._within_limits(self._request("GET", url, access))

    async def post(self, url: str, access: Credentials, form: Mapping[str, str]) -> HttpResponse | Failure:
        """A response of any status to a form, or why there is none. A form may be longer than a URL."""
        return await self._within_limits(self._request("POST", url, access, form))

    async def command(self, url: str, access: Credentials, timeout_s: float) -> HttpResponse | Failure:
        """A response of any status to a POST without a body, or why there is none within `timeout_s`."""
        return await self._within_limits(self._request("POST", url, access), timeout_s)

    async def close(self) -> None:
        self._plain.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _within_limits(
        self, response: Coroutine[Any, Any, Value | Failure], timeout_s: float | None = None
    ) -> Value | Failure:
        limit_s = self.limits.timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await response
        except TimeoutError:
            return Failure(FailureKind.TIMEOUT, f"no complete answer within {limit_s:g} s")
        except ScrapeRejected as rejected:
            return rejected.failure
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _failure(error)

    async def _get_page(self, url: str, access: Credentials) -> bytes | Failure:
        ordinary = await self._plain.get(url, _authorization(access), self.limits.body_bytes // SMALL)
        if ordinary is not None:
            return ordinary
        async with self._open().get(url, headers=_authorization(access), **self._options(url, access)) as response:
            if response.status != OK:
                return Failure(FailureKind.STATUS, f"HTTP {response.status} {response.reason or ''}".rstrip())
            return await self._body(response)

    async def _request(
        self, method: str, url: str, access: Credentials, form: Mapping[str, str] | None = None
    ) -> HttpResponse:
        options = {"headers": {"Accept": "application/json", **_authorization(access)}, **self._options(url, access)}
        async with self._open().request(method, url, data=form, **options) as response:
            return HttpResponse(response.status, response.reason or "", await self._body(response))

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        self._bodies.total = BODIES * self.limits.body_bytes
        with self._bodies.share() as share:
            return await _body(response, self.limits.body_bytes, share)

    def _options(self, url: str, access: Credentials) -> dict[str, Any]:
        return {
            "ssl": self._tls(access) if url.startswith("https:") else True,
            "server_hostname": access.server_name,
            # A redirect could lead anywhere, and would take the token along.
            "allow_redirects": False,
        }

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # The scrape loop bounds concurrency; a second bound here would turn waiting into time-outs.
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=10),
                headers=HEADERS,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                # aiohttp accepts a truncated gzip stream.
                auto_decompress=False,
            )
        return self._session

    def _tls(self, access: Credentials) -> ssl.SSLContext:
        """The TLS context of these files, created again when one of them has changed (certificates rotate)."""
        files = [f for f in (access.ca_file, access.certificate_file, access.key_file) if f]
        try:
            stamp = [(s.st_mtime_ns, s.st_ino, s.st_size) for s in map(os.stat, files)]
        except OSError as error:
            raise unusable(error.filename, error) from error
        # Not keyed by `access`: contexts do not depend on tokens, and each takes 1 MB with the system's certificates.
        key = (access.ca_file, access.certificate_file, access.key_file, access.insecure_skip_verify)
        entry = self._contexts.get(key)
        if entry is None or entry[0] != stamp:
            entry = self._contexts[key] = (stamp, tls_context(access))
        self._contexts.move_to_end(key)
        while len(self._contexts) > MAX_CONTEXTS:
            self._contexts.popitem(last=False)
        return entry[1]


async def _body(response: aiohttp.ClientResponse, limit_bytes: int, share: BudgetShare) -> bytes:
    """The whole decompressed body. Raises ScrapeRejected beyond `limit_bytes` and beyond what `share` may grow to."""
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding not in {"identity", "gzip", "x-gzip"}:
        raise ScrapeRejected(FailureKind.UNREADABLE, f"Content-Encoding {encoding!r}, though only gzip was requested")
    gzip = zlib.decompressobj(GZIP_WBITS) if encoding != "identity" else None
    body, empty = bytearray(), True
    async for chunk in response.content.iter_any():
        empty = False
        body += chunk if gzip is None else _decompressed(gzip, chunk, limit_bytes + 1 - len(body))
        if len(body) > limit_bytes:
            raise ScrapeRejected(FailureKind.TOO_LARGE, f"more than {limit_bytes} bytes (scrape.body_limit)")
        if not share.resize(len(body)):
            detail = f"{len(body)} bytes so far, and other large responses take the rest"
            raise ScrapeRejected(FailureKind.TOO_LARGE, detail)
    if gzip is not None and not empty and (not gzip.eof or gzip.unused_data):
        raise ScrapeRejected(FailureKind.REFUSED, "the gzip stream does not end where the response ends")
    framed = "Content-Length" in response.headers or "Transfer-Encoding" in response.headers
    if gzip is None and not framed and not body.endswith(b"\n") and not empty:
        # The format needs a line feed after the last line, and `waiting 12` may be the beginning of `waiting 123`.
        raise ScrapeRejected(FailureKind.REFUSED, "the connection closed in the middle of a line, without a length")
    return bytes(body)


def _decompressed(gzip: zlib._Decompress, chunk: bytes, limit_bytes: int) -> bytes:
    """At most `limit_bytes`: a compression bomb is not expanded further."""
    try:
        return gzip.decompress(chunk, limit_bytes)
    except zlib.error as error:
        raise ScrapeRejected(FailureKind.UNREADABLE, f"not valid gzip: {error}") from error


def _authorization(access: Credentials) -> Mapping[str, str]:
    if access.bearer_file:
        return {"Authorization": f"Bearer {secret(access.bearer_file)}"}
    if access.username is not None and access.password_file:
        pair = f"{access.username}:{secret(access.password_file)}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _failure(error: Exception) -> Failure:
    """The client's exception as a Failure, without the URL and the objects that its text may contain."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return Failure(FailureKind.TLS, f"{_address(error)}: certificate not trusted: {tls_reason(error)}")
        case aiohttp.ClientSSLError():
            return Failure(FailureKind.TLS, f"{_address(error)}: {tls_reason(error)}")
        case ssl.SSLError() | aiohttp.ClientOSError(__cause__=ssl.SSLError()):
            return Failure(FailureKind.TLS, f"the server ended the TLS connection: {tls_reason(error)}")
        case aiohttp.ClientConnectorError():
            return Failure(FailureKind.REFUSED, f"{_address(error)}: {os_reason(error.os_error)}")
        case aiohttp.ServerDisconnectedError():
            return Failure(FailureKind.REFUSED, "the server closed the connection before the end of the response")
        case aiohttp.ClientPayloadError():
            return Failure(FailureKind.REFUSED, "the connection broke in the middle of the response")
        case aiohttp.ClientResponseError():
            return Failure(FailureKind.REFUSED, f"the response is not HTTP: {error.message.splitlines()[0]}")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return Failure(FailureKind.REFUSED, "the address is not an HTTP URL")
        case OSError():
            return Failure(FailureKind.REFUSED, os_reason(error))
    return Failure(FailureKind.REFUSED, str(error) or type(error).__name__)


def _address(error: aiohttp.ClientConnectorError) -> str:
    return f"{error.host}:{error.port}"


class ScrapeRejected(Exception):  # noqa: N818 - a result, not an error of this program
    """Ends a scrape with a Failure."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.failure = Failure(kind, detail)


def unusable(file: str, error: Exception) -> ScrapeRejected:
    reason = error.strerror if isinstance(error, OSError) else None
    return ScrapeRejected(FailureKind.CREDENTIALS, f"{file}: {reason or error}")


def tls_context(access: Credentials) -> ssl.SSLContext:
    """Raises ScrapeRejected if a file is unusable."""
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise unusable(str(access.ca_file), error) from error
    if access.certificate_file:
        try:
            # Without a password OpenSSL would prompt for that of an encrypted key on the terminal.
            context.load_cert_chain(access.certificate_file, access.key_file, password="")
        except (OSError, ssl.SSLError) as error:
            raise unusable(f"{access.certificate_file} with {access.key_file}", error) from error
    if access.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def secret(file: str) -> str:
    """The token or password in a file, one line of text. Raises ScrapeRejected.

    Read at each use, because kubelet rotates tokens (about once an hour).
    """
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise unusable(file, error) from error
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable():
        raise ScrapeRejected(FailureKind.CREDENTIALS, f"{file}: must hold one line of text")
    return text


def tls_reason(error: Exception) -> str:
    cause = getattr(error, "certificate_error", None) or error.__cause__ or error
    # OpenSSL's reasons look like TLSV13_ALERT_CERTIFICATE_REQUIRED.
    reason = (getattr(cause, "reason", None) or str(cause)).lower().replace("_", " ")
    return getattr(cause, "verify_message", None) or reason


def os_reason(error: OSError) -> str:
    # asyncio and the resolver put other texts into strerror, and negative numbers into errno.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
