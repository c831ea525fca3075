"""The words places in a cluster are written in: a scale target, a Service, label matchers, a Prometheus. Text -> value.

Nothing here asks whether such a thing exists. As with `scalars`, a reader refuses with a sentence that says what would
be right.

Worked example: `read_target("Deployment/chat")` is "Deployment/chat"; `deploy/chat` is refused with "must be KIND/NAME,
KIND one of Deployment, StatefulSet, … (did you mean Deployment?)".
"""

from __future__ import annotations

import re
from typing import Any

from .kinds import did_you_mean
from .scalars import LABEL, Scalar, read_url, refused

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
