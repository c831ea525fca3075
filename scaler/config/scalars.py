"""Which kinds of page a configuration may name, as the catalog of quantities has them.

The catalog says how a page is read; a configuration only needs its usual port and path, and how many requests one
replica should hold. A page of GPUs is no engine: nothing can be asked of it. Neither is what lives in front of pods,
but for Ray Serve, whose pods speak of the queue in front of them, and our own page, which repeats an engine's.

The words values are written in: durations, sizes, addresses, names. Text -> value, and back.

Each kind of value is a `Scalar`: how to read it, how to write it, and its JSON Schema. A reader refuses with a
sentence that says what would be right; who was wrong, and where, is added by others.

Worked example: `read_duration("1h30m")` is 5400.0 and `write_duration(5400.0)` is "1h30m"; a bare number is seconds.

The words places in a cluster are written in: a scale target, a Service, label matchers, a Prometheus. Text -> value.

Nothing here asks whether such a thing exists. As with `scalars`, a reader refuses with a sentence that says what would
be right.

Worked example: `read_target("Deployment/chat")` is "Deployment/chat"; `deploy/chat` is refused with "must be KIND/NAME,
KIND one of Deployment, StatefulSet, … (did you mean Deployment?)".
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
REFUSED = "refused"  # the type of a pydantic error whose message is already ours
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
_DNS = rf"^{LABEL}(?:\.{LABEL})*\.?$"
_HOST_NAME = rf"^{LABEL}(?:\.{LABEL})*$"
_GLOB = r"^[-a-z0-9.*?\[\]!]+$"
HIGHEST_PORT = 65535


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
    # Braces in a sentence would be taken for places to fill in.
    return PydanticCustomError(REFUSED, "{sentence}", {"sentence": sentence})


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


def auto_or_duration(what: str) -> Scalar:
    """`auto`, or a duration. what: what `auto` stands for, in a word for the schema."""
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
        "anyOf": [{"type": "string", "const": AUTO, "description": what}, *plain.schema["anyOf"]],
    }
    return Scalar(read, write, schema | {"examples": [AUTO, "5m"]})


def read_duration(value: Any) -> float:
    """Seconds of "1h30m", "500ms" or of a number, which is seconds already."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value <= LONGEST_S:  # not so for NaN
            return float(value)
        raise refused(f"must be a duration from 0s to {write_duration(LONGEST_S)}")
    wanted = "must be a duration such as 500ms, 5s, 2m or 1h30m"
    # So many characters write the age of the universe in milliseconds, and no number that Decimal would refuse.
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
    # Down to the millisecond whole ones; what is finer stays a fraction of one, exact all the same.
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
    """Bytes of "8MiB", "500kB" or of a whole number, which is bytes already. "8Mi" is Kubernetes' spelling."""
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
    """A page to ask over HTTP. Credentials do not belong into it: it is printed in logs and on /metrics."""
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
        raise refused("must not carry a user or a password: they go into access.basic")
    if parts.fragment or not re.fullmatch(rf"{_HOST}(:[0-9]+)?", parts.netloc):
        raise refused(wanted)
    if port == 0:
        raise refused(f"{wanted}, its port from 1 to {HIGHEST_PORT}")
    return value


def read_dns(value: Any) -> str:
    wanted = "must be the DNS name of a Service such as chat.ai.svc"
    if isinstance(value, str) and "://" in value:
        raise refused(f"{wanted}: a URL goes into url")
    if isinstance(value, str) and re.fullmatch(r"[^:]*:[0-9]+", value):
        raise refused(f"{wanted}: its port goes into port")
    if not isinstance(value, str) or not re.fullmatch(_DNS, value) or len(value) > 253:  # noqa: PLR2004  RFC 1035
        raise refused(wanted)
    return value


def read_host_name(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(_HOST_NAME, value) or len(value) > 253:  # noqa: PLR2004  RFC 1035
        raise refused("must be a host name in lower case, without scheme and port, such as tidegate.example.com")
    return value


def kubernetes_name(most: int, what: str) -> Scalar:
    """A Kubernetes name: a DNS label (63) or a DNS subdomain (253)."""
    pattern = rf"^{LABEL}$" if what == "namespace" else rf"^{LABEL}(?:\.{LABEL})*$"

    def read(value: Any) -> str:
        if isinstance(value, int | float):  # a bare `name: 7` is a number to YAML
            raise refused(f"must be the name of a Kubernetes {what}: put it in quotes")
        if not isinstance(value, str) or not re.fullmatch(pattern, value) or len(value) > most:
            allowed = f"lower-case letters, digits and '-', at most {most} characters"
            raise refused(f"must be the name of a Kubernetes {what} ({allowed})")
        return value

    return Scalar(read, str, {"title": "name", "type": "string", "pattern": pattern, "maxLength": most})


def read_glob(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(_GLOB, value):
        raise refused("must be a glob of pod names such as chat-*-decode-*")
    return value


def read_zero(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value != 0:
        raise refused("must be 0, or be left out")
    return value


ADDRESS = Scalar(read_address, str, {"title": "host:port", "type": "string", "pattern": _ADDRESS})
URL = Scalar(read_url, str, {"title": "URL", "type": "string", "pattern": r"^https?://[^\s@]+$"})
DNS = Scalar(read_dns, str, {"title": "DNS name", "type": "string", "pattern": _DNS, "maxLength": 253})
HOST_NAME = Scalar(
    read_host_name, str, {"title": "host name", "type": "string", "pattern": _HOST_NAME, "maxLength": 253}
)
ZERO = Scalar(read_zero, int, {"title": "`0`", "type": "integer", "const": 0})
GLOB = Scalar(read_glob, str, {"title": "glob", "type": "string", "pattern": _GLOB})


# What has pods that can be found: by the owners of a pod, up to what is scaled.
TARGET_KINDS = ("Deployment", "StatefulSet", "LeaderWorkerSet", "Rollout", "InferenceService", "ScaledJob")
LONGEST_NAME = 253  # RFC 1035
LONGEST_LABEL = 63
EVERYWHERE = "*"

_NAME = rf"{LABEL}(?:\.{LABEL})*"
_TARGET = rf"^(?:{'|'.join(TARGET_KINDS)})/{_NAME}$"
_SERVICE = rf"^{LABEL}(?:\.{LABEL})?$"
_FULL_SERVICE = rf"^{LABEL}\.{LABEL}$"
_QUOTED = r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)"""
# The same, or what begins so and does not end: else each quote would be tried up to the end of the text.
_QUOTED_OR_OPEN = r"""(?:"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|`[^`]*`?)"""
_MATCHER = rf"\s*(?!__name__)[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*{_QUOTED}\s*"
_SELECTOR = rf"^{_MATCHER}(?:,{_MATCHER})*(?:,\s*)?$"


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


def read_service(value: Any) -> str:
    wanted = "must be NAME or NAME.NAMESPACE of a Service such as chat-epp.ai"
    if isinstance(value, str) and re.fullmatch(_SERVICE, value):
        return value
    if isinstance(value, str) and "://" in value:
        raise refused(f"{wanted}: a URL goes into url")
    if isinstance(value, str) and value.count(".") > 1:
        raise refused(f"{wanted}: a longer DNS name goes into dns")
    if isinstance(value, str) and re.fullmatch(r"[^:]*:[0-9]+", value):
        raise refused(f"{wanted}: its port goes into port")
    raise refused(wanted)


def read_full_service(value: Any) -> str:
    """A Service of which nobody could guess the namespace."""
    if isinstance(value, str) and re.fullmatch(_FULL_SERVICE, value):
        return value
    raise refused("must be NAME.NAMESPACE of a Service such as tidegate.tidegate")


def read_full_lease(value: Any) -> str:
    """A Lease, which has a namespace of its own: Tidegate may look at another one's workloads."""
    if isinstance(value, str) and re.fullmatch(_FULL_SERVICE, value):
        return value
    raise refused("must be NAME.NAMESPACE of a Lease such as tidegate.tidegate")


def read_gateway(value: Any) -> str:
    """What a tenant may call a gateway: a name, and never an address to fetch."""
    wanted = "must be the name of a Service in its own namespace, or of a shared gateway of Tidegate's configuration"
    if isinstance(value, str) and re.fullmatch(LABEL, value):
        return value
    if isinstance(value, str) and any(sign in value for sign in ("/", ":", ".")):
        raise refused(f"{wanted}; an address is never fetched, and another namespace's Service is not asked")
    raise refused(wanted)


def read_namespace_or_all(value: Any) -> str:
    if not isinstance(value, str) or (value != EVERYWHERE and not re.fullmatch(LABEL, value)):
        raise refused('must be the name of a namespace, or "*" for every one')
    return value


def read_selector(value: Any) -> str:
    wanted = """must be label matchers such as namespace="ai",pod=~"chat-.*" """.rstrip()
    if not isinstance(value, str) or not re.fullmatch(_SELECTOR, value):
        known = isinstance(value, str)
        outside = re.sub(_QUOTED_OR_OPEN, "", value) if known else ""
        if "{" in outside or "}" in outside:
            raise refused(f"{wanted}, without braces")
        if "__name__" in outside:
            raise refused(f"{wanted}, without __name__: the kind says which metrics are asked for")
        raise refused(wanted)
    return value


def read_api(value: Any) -> str:
    """Where a Prometheus-compatible API begins: what stands before `/api/v1/query`."""
    url = read_url(value)
    if "?" in url or re.search(r"/api/v1(/|$)", url):
        raise refused("must be where the API begins, such as https://prometheus.monitoring.svc:9090, without /api/v1")
    return url


TARGET = Scalar(read_target, str, {"title": "KIND/NAME", "type": "string", "pattern": _TARGET})
SERVICE = Scalar(read_service, str, {"title": "NAME or NAME.NAMESPACE", "type": "string", "pattern": _SERVICE})
FULL_SERVICE = Scalar(read_full_service, str, {"title": "NAME.NAMESPACE", "type": "string", "pattern": _FULL_SERVICE})
FULL_LEASE = Scalar(read_full_lease, str, {"title": "NAME.NAMESPACE", "type": "string", "pattern": _FULL_SERVICE})
GATEWAY_NAME = Scalar(
    read_gateway, str, {"title": "name", "type": "string", "pattern": rf"^{LABEL}$", "maxLength": LONGEST_LABEL}
)
NAMESPACE_OR_ALL = Scalar(
    read_namespace_or_all, str, {"title": "namespace", "type": "string", "pattern": rf"^(?:\*|{LABEL})$"}
)
SELECTOR = Scalar(read_selector, str, {"title": "label matchers", "type": "string", "pattern": _SELECTOR})
API = Scalar(read_api, str, {"title": "URL", "type": "string", "pattern": r"^https?://[^\s@?]+$"})


GPUS = "dcgm"
GATEWAY = "epp"
REDIS = "redis_exporter"  # in whose words Redis' own answers are read
OWN = "tidegate"  # the page of `tidegate export`: of an engine, of GPUs, or of both
_QUEUES = {name: kind for name, kind in KINDS.items() if name not in GPU_KINDS}
ENGINES = tuple(
    sorted(
        name
        for name, kind in _QUEUES.items()
        if (kind.at_zero == "nothing" and not kind.repeats_engines) or name == "ray_serve"
    )
)
GATEWAYS = tuple(sorted(_QUEUES))
PAGES_OF_GPUS = tuple(sorted({*GPU_KINDS, OWN}))


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(word, list(known), n=1)
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


ENGINE = _one_of(ENGINES, "its pages go under gpus")
GATEWAY_KIND = _one_of(GATEWAYS, "must see requests")
KIND = _one_of(tuple(sorted(KINDS)), "")
