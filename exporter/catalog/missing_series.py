"""Writes what identifies a missing series, or a GPU without its pod label, as bytes for a checkpoint. Pure.

A record is one JSON object without NUL bytes. For any other bytes `read` and `read_label` return None: a checkpoint may
be damaged or of another version.

Worked example: `vllm:num_requests_waiting{model_name="m",engine="1"}` is written as
`{"quantity":"requests_waiting","queue":"m","series":["vllm:num_requests_waiting","engine","1","model_name","m"]}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from exporter.model import Attribution, Gpu, PodKey, Quantity, Queue, Subject, printable

from .plan import ESSENTIAL

# Of one target. More would add nothing: one gap makes a quantity a lower bound.
MAX_STORED = 32
# Of one record: a name and ten labels of Kubernetes' longest values (63 characters) have about 900 bytes. A longer
# record is not stored.
MAX_IDENTITY_BYTES = 1024
_TEXT_LENGTH = 200

Key: TypeAlias = tuple[str, ...]


class Identity(NamedTuple):
    """key: identity of the series across responses. text: of a GPU's series, for messages; "" for a queue."""

    key: Key
    subject: Subject
    quantity: Quantity
    text: str


def write(identity: Identity) -> bytes | None:
    """Returns the record. Returns None if it has more than MAX_IDENTITY_BYTES."""
    subject = identity.subject
    fields: dict[str, Any] = {"quantity": identity.quantity}
    if isinstance(subject, Gpu):
        fields |= _fields(subject) | {"text": identity.text}
    else:
        fields |= {"queue": subject.name, "series": identity.key}
    return _packed(fields)


def write_label(gpu: Gpu) -> bytes | None:
    """Returns the record of a GPU that has lost its pod label, as it was last labelled. None as `write`."""
    return _packed(_fields(gpu))


def read_label(record: bytes) -> Gpu | None:
    """Returns the GPU that `write_label` has written. Returns None for any other bytes."""
    if len(record) > MAX_IDENTITY_BYTES:
        return None
    try:
        fields = json.loads(record)
        return None if "quantity" in fields else _gpu(fields)
    except _MALFORMED:
        return None


def read(record: bytes) -> Identity | None:
    """Returns the identity that `write` has written. Returns None for any other bytes."""
    if len(record) > MAX_IDENTITY_BYTES:
        return None
    try:
        fields = json.loads(record)
        quantity = Quantity(fields["quantity"])
        if quantity not in ESSENTIAL:
            return None
        return _series_of_gpu(fields, quantity) if "uuid" in fields else _queue(fields, quantity)
    except _MALFORMED:
        return None


_MALFORMED = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


def _packed(fields: Mapping[str, Any]) -> bytes | None:
    record = json.dumps(fields, separators=(",", ":")).encode()
    return record if len(record) <= MAX_IDENTITY_BYTES else None


def _fields(gpu: Gpu) -> dict[str, Any]:
    return {
        "uuid": gpu.uuid,
        "instance": gpu.instance,
        "profile": gpu.profile,
        "model": gpu.model,
        "node": gpu.node,
        "attribution": gpu.attribution,
        "pods": gpu.pods,
        "implied": gpu.implied,
    }


def _queue(fields: Mapping[str, Any], quantity: Quantity) -> Identity:
    key = _texts(fields["series"])
    if len(key) % 2 != 1 or not key[0]:
        raise ValueError("series: must be a name and pairs of label and value")
    return Identity(key, Queue(_text(fields["queue"])), quantity, "")


def _series_of_gpu(fields: Mapping[str, Any], quantity: Quantity) -> Identity:
    gpu = _gpu(fields)
    text = printable(_text(fields["text"])[:_TEXT_LENGTH])
    return Identity((gpu.uuid, gpu.instance or "", quantity), gpu, quantity, text)


def _gpu(fields: Mapping[str, Any]) -> Gpu:
    pods = (_texts(pod) for pod in fields["pods"])
    return Gpu(
        uuid=_text(fields["uuid"]),
        instance=_optional(fields["instance"]),
        profile=_optional(fields["profile"]),
        model=_optional(fields["model"]),
        attribution=Attribution(fields["attribution"]),
        pods=tuple(PodKey(namespace, pod) for namespace, pod in pods),
        implied=fields["implied"] is True,
        node=_optional(fields["node"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"must be text, got {value!r}")
    return value


def _texts(value: Sequence[object]) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"must be a list of text, got {value!r}")
    return tuple(map(_text, value))


def _optional(value: object) -> str | None:
    return None if value is None else _text(value)
