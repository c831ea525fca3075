"""Trigger metadata of a ScaledObject -> the workload it asks about, or whose mistake it is, in words. Pure.

It knows the keys that may stand in a trigger's `metadata` and refuses to know what they lead to. Nothing in here
names another namespace: a ScaledObject speaks for its own.

Worked example: ScaledObject `chat` in `team-a` with `{"scalerAddress": "tidegate:6000", "workload": "llama"}` asks
about `team-a/llama`; without `workload`, about `team-a/chat`; with `wrokload` it is told
`metadata.wrokload: unknown key; did you mean 'workload'? Known: workload`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from exporter.model import WorkloadKey

from .externalscaler_pb2 import ScaledObjectRef

OURS = ("workload",)
# KEDA hands all trigger metadata on, its own connection settings included; of `…FromEnv` it keeps the name and
# puts in the resolved value.
KEDAS = ("scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsClientCert", "tlsClientKey", "tlsCertFile")

# RFC 1123 as Kubernetes reads it: a namespace is a label, the names of workloads and ScaledObjects are subdomains.
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PLAIN_KEY = re.compile(r"[\w.-]{1,63}", re.ASCII)
# Errors travel in an HTTP/2 trailer, where 8 KiB is what a client must be ready to take.
_SHOWN_CHARACTERS = 80


class BadMetadata(ValueError):  # noqa: N818 - named for whose fault it is
    """A tenant's mistake. `key`: where it stands; `bound`: the rule; `value`: what was given, where that broke it."""

    def __init__(self, key: str, bound: str, value: str | None = None) -> None:
        super().__init__(f"{key}: {bound}" if value is None else f"{key}: {bound}, got {shown(value)}")
        self.key = key
        self.bound = bound
        self.value = value


def read(ref: ScaledObjectRef) -> WorkloadKey:
    """The workload a ScaledObject asks about. Raises BadMetadata."""
    metadata = dict(ref.scalerMetadata)
    _refuse_unknown_keys(metadata)
    namespace = _matching(_LABEL, "scaledObjectRef.namespace", "must be a DNS-1123 label", ref.namespace)
    key, name = (
        ("metadata.workload", metadata["workload"]) if "workload" in metadata else ("scaledObjectRef.name", ref.name)
    )
    if "/" in name:
        raise BadMetadata(key, "must be a name in the ScaledObject's own namespace, without a '/'", name)
    return WorkloadKey(namespace, _matching(_SUBDOMAIN, key, "must be a DNS-1123 name", name))


def shown(value: str) -> str:
    """A stranger's text, fit for an error: quoted, cut, and in ASCII, where no letter can pass for its look-alike."""
    quoted = ascii(value)
    return quoted if len(quoted) <= _SHOWN_CHARACTERS else f"{quoted[:_SHOWN_CHARACTERS]}... ({len(value)} characters)"


def _refuse_unknown_keys(keys: Iterable[str]) -> None:
    unknown = sorted(key for key in keys if key not in OURS and key.removesuffix("FromEnv") not in KEDAS)
    if not unknown:
        return
    key = unknown[0]
    plain = _PLAIN_KEY.fullmatch(key)
    near = get_close_matches(key, (*OURS, *KEDAS), n=1) if plain else []
    hint = f"; did you mean '{near[0]}'?" if near else "."
    raise BadMetadata(f"metadata.{key if plain else shown(key)}", f"unknown key{hint} Known: {', '.join(OURS)}")


def _matching(pattern: re.Pattern[str], key: str, bound: str, value: str) -> str:
    if not pattern.fullmatch(value):
        raise BadMetadata(key, bound, value)
    return value
