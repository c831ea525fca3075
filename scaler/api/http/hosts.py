"""Checks the Host header of requests that a browser must not make for another site (DNS rebinding).

A page of evil.example can point that name at the address of this server. The browser then takes both for one site, and
the page reads the API from inside of the user's network. The request still names evil.example in its Host header, so a
request is answered only if its Host cannot be such a name: an IP address, `localhost`, a name without dots (pods,
Services, machines of the same domain; it cannot be registered), a name of the cluster's DNS (`*.svc`,
`*.cluster.local`), or a name of `listen.http_hosts`. NAME.NAMESPACE is none of these: `tidegate.dev` is a public name.

/metrics, /livez and /readyz are answered for any Host. The kubelet and Prometheus send pod addresses, Service names,
proxies' names or what their configuration overrides; a check there could restart a healthy pod or end its monitoring.
What /metrics has for a foreign page are names of workloads and numbers, no credentials.

Worked example: `is_allowed("10.0.0.7:8080", ())` and `is_allowed("tidegate.ai.svc", ())` are true,
`is_allowed("evil.example", ())` is false, and `is_allowed("tidegate.example.com", {"tidegate.example.com"})` is true.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from http import HTTPStatus
from ipaddress import ip_address

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from scaler.config.errors import shown

ANY_HOST = frozenset({"/metrics", "/livez", "/readyz"})

_NAME_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]{0,5})?")
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
# These cannot be registered: `svc` is no top-level domain, RFC 6761 and 6762 reserve `localhost` and `local`.
_RESERVED = (".localhost", ".svc", ".cluster.local")


def is_allowed(host: str, names: Collection[str]) -> bool:
    """host: a Host header. names: further host names, in lower case."""
    found = _NAME_AND_PORT.fullmatch(host)
    if found is None:
        return False
    name = found[1].strip("[]").lower().removesuffix(".")
    return _is_address(name) or _LABEL.fullmatch(name) is not None or name.endswith(_RESERVED) or name in names


def known_host(names: Collection[str]) -> Middleware:
    """A middleware that refuses other hosts with 421. A request without Host is not a browser's."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in ANY_HOST:
            for host in request.headers.getall("Host", ()):
                if not is_allowed(host, names):
                    return web.json_response({"error": _refusal(host)}, status=HTTPStatus.MISDIRECTED_REQUEST)
        return await handler(request)

    return check


def _refusal(host: str) -> str:
    return (
        "Host: must be an IP address, localhost, a name without dots, a name that ends in .svc or .cluster.local, or "
        f"one of listen.http_hosts, got {shown(host)}; if it is a name of this server, add it to listen.http_hosts"
    )


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
