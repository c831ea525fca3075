"""HTTP text pages: one session for all, bytes or a `Failure` for each.

A page may be slow, endless, compressed without end, broken in the middle or guarded; each costs its own scrape and
nothing more. Bytes are counted after decompression, because the cap guards memory, not the network.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from exporter.model import Access, Failure, FailureKind

# Prometheus text is what every page speaks; OpenMetrics is taken where it is all there is.
ACCEPT = "text/plain;version=0.0.4;q=1.0, application/openmetrics-text;version=1.0.0;q=0.5, */*;q=0.1"
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Limits:
    """timeout_s: seconds of the wall for one whole page. body_bytes: the largest page believed, decompressed."""

    timeout_s: float
    body_bytes: int


@dataclass(slots=True)
class HttpPages:
    """A keep-alive session and the TLS contexts made so far. Close it when done."""

    limits: Limits
    _session: aiohttp.ClientSession | None = None
    _contexts: dict[Access, tuple[tuple[float, ...], ssl.SSLContext]] = field(default_factory=dict)

    async def fetch(self, url: str, access: Access) -> bytes | Failure:
        """The page's bytes, or why there are none."""
        try:
            async with asyncio.timeout(self.limits.timeout_s):
                return await self._read(url, access)
        except TimeoutError:
            return Failure(FailureKind.TIMEOUT, f"no complete page within {self.limits.timeout_s:g} s")
        except _CredentialsError as error:
            return Failure(FailureKind.CREDENTIALS, str(error))
        except (aiohttp.ClientSSLError, ssl.SSLError) as error:
            return Failure(FailureKind.TLS, str(error))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Failure(FailureKind.REFUSED, str(error) or type(error).__name__)

    async def _read(self, url: str, access: Access) -> bytes | Failure:
        session = self._open()
        request = session.get(
            url,
            headers=_authorization(access),
            ssl=self._tls(access) if url.startswith("https:") else True,
            server_hostname=access.server_name,
            # A redirect could lead anywhere, and would take the token along.
            allow_redirects=False,
        )
        async with request as response:
            if response.status != 200:  # noqa: PLR2004
                return Failure(FailureKind.STATUS, f"HTTP {response.status} {response.reason or ''}".rstrip())
            body = bytearray()
            async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                body += chunk
                if len(body) > self.limits.body_bytes:
                    return Failure(
                        FailureKind.TOO_LARGE, f"more than {self.limits.body_bytes} bytes (scrape.body_limit)"
                    )
            return bytes(body)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # The scrape loop bounds concurrency; a second bound here would only make time-outs of waiting.
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=10),
                headers={"Accept": ACCEPT, "User-Agent": "tidegate"},
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session

    def _tls(self, access: Access) -> ssl.SSLContext:
        """A context for these files, made again when one of them has changed (certificates rotate)."""
        files = [f for f in (access.ca_file, access.certificate_file, access.key_file) if f]
        try:
            stamp = tuple(Path(f).stat().st_mtime for f in files)
        except OSError as error:
            raise _CredentialsError(f"{error.filename}: {error.strerror}") from error
        made = self._contexts.get(access)
        if made is None or made[0] != stamp:
            made = self._contexts[access] = (stamp, _context(access))
        return made[1]

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class _CredentialsError(Exception):
    """A file that should let us in cannot be used."""


def _context(access: Access) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
        if access.certificate_file:
            context.load_cert_chain(access.certificate_file, access.key_file)
    except (OSError, ssl.SSLError) as error:
        raise _CredentialsError(f"{access.certificate_file or access.ca_file}: {error}") from error
    if access.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _authorization(access: Access) -> Mapping[str, str]:
    if access.bearer_file:
        return {"Authorization": f"Bearer {_secret(access.bearer_file)}"}
    if access.username is not None and access.password_file:
        pair = f"{access.username}:{_secret(access.password_file)}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _secret(file: str) -> str:
    """A token or password; read each time, because kubelet rotates them (about once an hour)."""
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _CredentialsError(f"{file}: {error}") from error
