"""Reads and writes the single values of a configuration: durations, sizes, addresses, names, kinds.

A kind of value is a `Scalar`: its reader, its writer and its JSON Schema. A reader rejects a value with a sentence that
says what is valid; the position is added elsewhere. Nothing here resolves a name or asks a server.

Worked example: `read_duration("1h30m")` is 5400.0 and `write_duration(5400.0)` is "1h30m"; a bare number is seconds.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError, core_schema

from exporter.catalog import GPU_KINDS, KINDS

AUTO: Literal["auto"] = "auto"
PRICE: Literal["price"] = "price"
REFUSED = "refused"  # the type of a pydantic error with a message of ours
LONGEST_S = 365 * 86400.0  # a longer duration is a typing mistake

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_DURATION = rf"^(?=[0-9])(?:({_NUMBER})d)?(?:({_NUMBER})h)?(?:({_NUMBER})m)?(?:({_NUMBER})s)?(?:({_NUMBER})ms)?$"
_SECONDS_PER_UNIT = (Decimal(86400), Decimal(3600), Decimal(60), Decimal(1), Decimal("0.001"))
_UNITS = ("d", "h", "m", "s", "ms")
_SIZE = r"^([0-9]+)(B|kB|MB|GB|KiB?|MiB?|GiB?)$"
_BYTES_PER_UNIT = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
_ADDRESS = rf"^({_HOST}):([0-9]{{1,5}})$"
LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
HIGHEST_PORT = 65535
_NO_CREDENTIALS = "must not carry a user or a password: they go into access.basic"
# Scale targets with pods that can be found by their owner references.
TARGET_KINDS = (
    "Deployment", "StatefulSet", "LeaderWorkerSet", "Rollout", "InferenceService", "InferenceSet", "ScaledJob",
)  # fmt: skip
LONGEST_NAME = 253  # characters; RFC 1035
EVERYWHERE = "*"

_NAME = rf"{LABEL}(?:\.{LABEL})*"
_TARGET = rf"^(?:{'|'.join(TARGET_KINDS)})/{_NAME}$"
_NAME_AND_NAMESPACE = rf"^{LABEL}\.{LABEL}$"
_QUOTED = r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)"""
# The same, or an unclosed quote: otherwise each quote would be tried up to the end of the text.
_QUOTED_OR_OPEN = r"""(?:"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|`[^`]*`?)"""
_MATCHER = rf"\s*(?!__name__)[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*{_QUOTED}\s*"

GPUS = "dcgm"
GATEWAY = "epp"
REDIS = "redis_exporter"  # the kind that Redis sources are read as
EXPORT = "tidegate"  # `tidegate export`: an engine, GPUs, or both
_REQUEST_KINDS = {name: kind for name, kind in KINDS.items() if name not in GPU_KINDS}
# Kinds of pods: not GPUs, and not what runs in front of pods, which still shows requests at zero replicas; nor
# `tidegate export`, which repeats an engine. Ray Serve's pods report the queue in front of them.
ENGINES = tuple(
    sorted(
        name
        for name, kind in _REQUEST_KINDS.items()
        if (kind.at_zero == "nothing" and not kind.repeats_engines) or name == "ray_serve"
    )
)
GATEWAYS = tuple(sorted(_REQUEST_KINDS))
GPU_TARGET_KINDS = tuple(sorted({*GPU_KINDS, EXPORT}))


class Address(NamedTuple):
    """Where to listen. Port 0 is any free port; `host` is written without the brackets of IPv6."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity: a schema is a dictionary
class Scalar:
    """One kind of value, for `Annotated[type, Scalar(…)]`."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    schema: dict[str, Any]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> core_schema.CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(self.write, when_used="json")
        return core_schema.no_info_plain_validator_function(self.read, serialization=written)

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> dict[str, Any]:
        return dict(self.schema)


def refused(sentence: str) -> PydanticCustomError:
    # As a template the sentence could not contain braces.
    return PydanticCustomError(REFUSED, "{sentence}", {"sentence": sentence})


def matching(
    title: str, pattern: str, bound: str, *, hint: Callable[[str], str] = lambda _: "", longest: int | None = None
) -> Scalar:
    """Text that matches `pattern`. hint: how the message ends for an invalid text. longest: in characters."""

    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise refused(bound)
        if not re.fullmatch(pattern, value) or (longest is not None and len(value) > longest):
            raise refused(bound + hint(value))
        return value

    schema = {"title": title, "type": "string", "pattern": pattern}
    return Scalar(read, str, schema if longest is None else schema | {"maxLength": longest})


def duration(at_least_s: float = 0.0, at_most_s: float = LONGEST_S) -> Scalar:
    def read(value: Any) -> float:
        seconds = read_duration(value)
        if seconds < at_least_s:
            raise refused(f"must be at least {write_duration(at_least_s)}")
        if seconds > at_most_s:
            raise refused(f"must be at most {write_duration(at_most_s)}")
        return seconds

    bounds = {"minimum": at_least_s, "maximum": at_most_s}
    written = {"type": "string", "pattern": _DURATION.replace("(" + _NUMBER + ")", _NUMBER)}
    span = f"{write_duration(at_least_s)} to {write_duration(at_most_s)}"
    title = f"duration, {span}" if at_most_s < LONGEST_S or at_least_s else "duration"
    examples = ["500ms", "5s", "1h30m", 2.5]
    return Scalar(
        read, write_duration, {"title": title, "anyOf": [written, {"type": "number", **bounds}], "examples": examples}
    )


def auto_or_duration(meaning: str) -> Scalar:
    """`auto`, or a duration. meaning: of `auto`, in a word for the schema."""
    plain = duration()

    def read(value: Any) -> float | Literal["auto"]:
        if value == AUTO:
            return AUTO
        try:
            return float(plain.read(value))
        except PydanticCustomError as bad:
            raise refused(f"{bad.message()}, or auto") from None

    def write(value: float | Literal["auto"]) -> str:
        return AUTO if value == AUTO else write_duration(value)

    schema = {
        "title": "`auto` or duration",
        "anyOf": [{"type": "string", "const": AUTO, "description": meaning}, *plain.schema["anyOf"]],
    }
    return Scalar(read, write, schema | {"examples": [AUTO, "5m"]})


def place_or_price(most: int) -> Scalar:
    """A place, 0 to `most`, or `price`."""

    def read(value: Any) -> int | Literal["price"]:
        if value == PRICE:
            return PRICE
        # The keys of a trigger are text.
        whole = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else value
        if isinstance(whole, int) and not isinstance(whole, bool) and 0 <= whole <= most:
            return whole
        raise refused(f"must be a whole number from 0 to {most}, or price")

    whole = {"type": "integer", "minimum": 0, "maximum": most}
    schema = {"title": f"`price` or integer, 0 to {most}", "anyOf": [{"type": "string", "const": PRICE}, whole]}
    return Scalar(read, lambda value: value, schema)


def read_duration(value: Any) -> float:
    """Seconds of "1h30m", of "500ms", or of a number of seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value <= LONGEST_S:  # not so for NaN
            return float(value)
        raise refused(f"must be a duration from 0s to {write_duration(LONGEST_S)}")
    wanted = "must be a duration such as 500ms, 5s, 2m or 1h30m"
    # 60 characters are enough for any duration, and too few for a number that Decimal rejects.
    match = re.fullmatch(_DURATION, value) if isinstance(value, str) and len(value) <= 60 else None  # noqa: PLR2004
    if match:
        parts = zip(match.groups(), _SECONDS_PER_UNIT, strict=True)
        return float(sum((Decimal(number) * unit for number, unit in parts if number), Decimal(0)))
    if isinstance(value, str) and (colon := re.fullmatch(r"([0-9]{1,4}):([0-9]{1,4})", value)):
        first, second = int(colon[1]), int(colon[2])
        raise refused(f"{wanted} (hours and minutes are {first}h{second}m, minutes and seconds {first}m{second}s)")
    raise refused(wanted)


def write_duration(seconds: float) -> str:
    """The shortest exact text: 5400.0 is "1h30m", 0.5 is "500ms"."""
    rest = Decimal(repr(float(seconds)))
    text = ""
    for name, unit in zip(_UNITS[:-1], _SECONDS_PER_UNIT[:-1], strict=True):
        count, rest = divmod(rest, unit)
        text += f"{count:f}{name}" if count else ""
    # Whole units down to the millisecond; the rest is an exact fraction of a millisecond.
    milliseconds = (rest * 1000).normalize()
    return text + f"{milliseconds:f}ms" if milliseconds else text or "0s"


def size(at_least_bytes: int, at_most_bytes: int) -> Scalar:
    def read(value: Any) -> int:
        count = read_size(value)
        if count < at_least_bytes:
            raise refused(f"must be at least {write_size(at_least_bytes)}")
        if count > at_most_bytes:
            raise refused(f"must be at most {write_size(at_most_bytes)}")
        return count

    bounds = {"minimum": at_least_bytes, "maximum": at_most_bytes}
    written = {"type": "string", "pattern": _SIZE}
    title = f"size, {write_size(at_least_bytes)} to {write_size(at_most_bytes)}"
    return Scalar(
        read,
        write_size,
        {"title": title, "anyOf": [written, {"type": "integer", **bounds}], "examples": ["512KiB", "8MiB", 1000000]},
    )


def read_size(value: Any) -> int:
    """Bytes of "8MiB", of "500kB", or of an integer of bytes. "8Mi" is the notation of Kubernetes."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = re.fullmatch(_SIZE, value) if isinstance(value, str) else None
    if match is None or len(match[1]) > len("1000000000000"):
        raise refused("must be a size such as 512KiB, 8MiB or a whole number of bytes")
    unit = match[2] if match[2] in _BYTES_PER_UNIT else match[2].removesuffix("B")
    return int(match[1]) * _BYTES_PER_UNIT[unit]


def write_size(count: int) -> str:
    for unit in ("Gi", "Mi", "Ki"):
        if count and count % _BYTES_PER_UNIT[unit] == 0:
            return f"{count // _BYTES_PER_UNIT[unit]}{unit}B"
    return f"{count}B"


def _redis_url(path: str, bound: str) -> Scalar:
    """URL of a Redis server. path: pattern of what follows the port."""
    pattern = rf"^rediss?://{_HOST}(?::[0-9]{{1,5}})?{path}$"

    def read(value: Any) -> str:
        if isinstance(value, str) and "@" in value:
            raise refused(_NO_CREDENTIALS)
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise refused(bound)
        try:
            port = urlsplit(value).port
        except ValueError:
            port = 0
        if port == 0:
            raise refused(f"{bound}, its port from 1 to {HIGHEST_PORT}")
        return value

    return Scalar(read, str, {"title": "Redis URL", "type": "string", "pattern": pattern})


def read_address(value: Any) -> Address:
    """Host and port of "0.0.0.0:8080" or "[::]:8080"."""
    if isinstance(value, Address):
        return value
    match = re.fullmatch(_ADDRESS, value) if isinstance(value, str) else None
    if match is None:
        raise refused('must be host:port such as 0.0.0.0:8080 or "[::]:8080"')
    host, port = match[1].strip("[]"), int(match[2])
    if match[1].startswith("["):
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise refused("must have an IPv6 address between its brackets") from None
    if port > HIGHEST_PORT:
        raise refused(f"must have a port of at most {HIGHEST_PORT}")
    return Address(host, port)


def read_url(value: Any) -> str:
    """URL of a target. Rejects credentials, because logs and /metrics show the URL."""
    wanted = "must be a URL such as http://chat.ai.svc:8000/metrics"
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise refused(wanted)
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise refused(f"{wanted}, its port from 1 to {HIGHEST_PORT}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise refused(wanted)
    if "@" in parts.netloc:
        raise refused(_NO_CREDENTIALS)
    if parts.fragment or not re.fullmatch(rf"{_HOST}(:[0-9]+)?", parts.netloc):
        raise refused(wanted)
    if port == 0:
        raise refused(f"{wanted}, its port from 1 to {HIGHEST_PORT}")
    return value


def kubernetes_name(most: int, what: str) -> Scalar:
    """A Kubernetes name: a DNS label (63) or a DNS subdomain (253)."""
    pattern = rf"^{LABEL}$" if what == "namespace" else rf"^{_NAME}$"

    def read(value: Any) -> str:
        if isinstance(value, int | float):  # a bare `name: 7` is a number to YAML
            raise refused(f"must be the name of a Kubernetes {what}: put it in quotes")
        if not isinstance(value, str) or not re.fullmatch(pattern, value) or len(value) > most:
            allowed = f"lower-case letters, digits and '-', at most {most} characters"
            raise refused(f"must be the name of a Kubernetes {what} ({allowed})")
        return value

    return Scalar(read, str, {"title": "name", "type": "string", "pattern": pattern, "maxLength": most})


def read_zero(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value != 0:
        raise refused("must be 0, or be left out")
    return value


def read_target(value: Any) -> str:
    kind, slash, name = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not slash or "/" in name:
        raise refused("must be KIND/NAME such as Deployment/chat, in the workload's own namespace")
    if kind not in TARGET_KINDS:
        meant = did_you_mean(kind.capitalize(), TARGET_KINDS) or did_you_mean(kind, TARGET_KINDS)
        hint = f" (did you mean {meant}?)" if meant else ""
        raise refused(f"must be KIND/NAME, KIND one of {', '.join(TARGET_KINDS)}{hint}")
    if not re.fullmatch(_NAME, name) or len(name) > LONGEST_NAME:
        raise refused(f"must name a {kind}: lower-case letters, digits, '-' and '.', at most {LONGEST_NAME} characters")
    return str(value)


def _endpoint_hint(value: str) -> str:
    """Which key of an endpoint takes this text."""
    if "://" in value:
        return ": a URL goes into url"
    return ": its port goes into port" if re.fullmatch(r"[^:]*:[0-9]+", value) else ""


def _service_hint(value: str) -> str:
    if "://" not in value and value.count(".") > 1:
        return ": a longer DNS name goes into dns"
    return _endpoint_hint(value)


def _gateway_hint(value: str) -> str:
    is_address = any(sign in value for sign in ("/", ":", "."))
    return "; an address is never fetched, and another namespace's Service is not asked" if is_address else ""


def _selector_hint(value: str) -> str:
    unquoted = re.sub(_QUOTED_OR_OPEN, "", value)
    if "{" in unquoted or "}" in unquoted:
        return ", without braces"
    return ", without __name__: the kind determines the metrics" if "__name__" in unquoted else ""


def read_api(value: Any) -> str:
    """Base URL of a Prometheus-compatible API, without `/api/v1`."""
    url = read_url(value)
    if "?" in url or re.search(r"/api/v1(/|$)", url):
        raise refused("must be where the API begins, such as https://prometheus.monitoring.svc:9090, without /api/v1")
    return url


def did_you_mean(word: str, choices: Iterable[str]) -> str | None:
    """The choice that resembles a misspelt word; None if none does."""
    close = difflib.get_close_matches(word, list(choices), n=1)
    return close[0] if close else None


def _one_of(kinds: tuple[str, ...], hint: str) -> Scalar:
    def read(value: Any) -> str:
        if isinstance(value, str) and value in kinds:
            return value
        meant = did_you_mean(value.lower(), kinds) if isinstance(value, str) else None
        is_gpus = isinstance(value, str) and value in GPU_KINDS
        hints = f" ({hint})" if hint and is_gpus else f" (did you mean {meant}?)" if meant else ""
        raise refused(f"must be one of {', '.join(kinds)}{hints}")

    return Scalar(read, str, {"title": "kind", "type": "string", "enum": list(kinds)})


ADDRESS = Scalar(read_address, str, {"title": "host:port", "type": "string", "pattern": _ADDRESS})
URL = Scalar(read_url, str, {"title": "URL", "type": "string", "pattern": r"^https?://[^\s@]+$"})
API = Scalar(read_api, str, {"title": "URL", "type": "string", "pattern": r"^https?://[^\s@?]+$"})
REDIS_URL = _redis_url("(?:/[0-9]{0,5})?", "must be a URL such as redis://redis.batch.svc:6379/0, or rediss:// for TLS")
REDIS_NODE = _redis_url("", "must be a URL such as redis://redis-0.redis:6379, without a database, or rediss://")
ZERO = Scalar(read_zero, int, {"title": "`0`", "type": "integer", "const": 0})
TARGET = Scalar(read_target, str, {"title": "KIND/NAME", "type": "string", "pattern": _TARGET})
DNS = matching(
    "DNS name",
    rf"^{_NAME}\.?$",
    "must be the DNS name of a Service such as chat.ai.svc",
    hint=_endpoint_hint,
    longest=LONGEST_NAME,
)
HOST_NAME = matching(
    "host name",
    rf"^{_NAME}$",
    "must be a host name in lower case, without scheme and port, such as tidegate.example.com",
    longest=LONGEST_NAME,
)
OBJECT_URL = matching(
    "URL template",
    r"^https?://(?:[^\s@{}]|\{(?:namespace|kind|name)\})+$",
    "must be a URL such as https://console.example.com/{kind}s/{namespace}/{name}; no other name in braces",
)
GLOB = matching("glob", r"^[-a-z0-9.*?\[\]!]+$", "must be a glob of pod names such as chat-*-decode-*")
SERVICE = matching(
    "NAME or NAME.NAMESPACE",
    rf"^{LABEL}(?:\.{LABEL})?$",
    "must be NAME or NAME.NAMESPACE of a Service such as chat-epp.ai",
    hint=_service_hint,
)
FULL_SERVICE = matching(
    "NAME.NAMESPACE", _NAME_AND_NAMESPACE, "must be NAME.NAMESPACE of a Service such as tidegate.tidegate"
)
FULL_LEASE = matching(
    "NAME.NAMESPACE", _NAME_AND_NAMESPACE, "must be NAME.NAMESPACE of a Lease such as tidegate.tidegate"
)
# A tenant names a gateway, and never gives an address to fetch.
GATEWAY_NAME = matching(
    "name",
    rf"^{LABEL}$",
    "must be the name of a Service in its own namespace, or of a shared gateway of Tidegate's configuration",
    hint=_gateway_hint,
    longest=63,
)
NAMESPACE_OR_ALL = matching(
    "namespace", rf"^(?:\*|{LABEL})$", f'must be the name of a namespace, or "{EVERYWHERE}" for every one'
)
SELECTOR = matching(
    "label matchers",
    rf"^{_MATCHER}(?:,{_MATCHER})*(?:,\s*)?$",
    """must be label matchers such as namespace="ai",pod=~"chat-.*\"""",
    hint=_selector_hint,
)
ENGINE = _one_of(ENGINES, "its pages go under gpus")
GATEWAY_KIND = _one_of(GATEWAYS, "must see requests")
KIND = _one_of(tuple(sorted(KINDS)), "")
