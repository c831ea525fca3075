"""Authorizes a call: its metadata must equal the metadata of a trigger of the watched ScaledObject.

It compares metadata and does not parse it: a trigger is parsed when its object changes. So a pod that reaches the port
can neither make a workload nor change another's, and a flood of calls costs look-ups. KEDA passes on all metadata of a
trigger, connection settings included, and replaces `...FromEnv` by the value: those keys cannot be compared with the
watched object, may be secrets, and are left out.

A rejected caller learns nothing about other objects: whether a ScaledObject does not exist, has no external trigger, or
has other metadata, the doubt and the sentence are the same. The difference is in `CallRejected.detail`, for the log.

Worked example: ScaledObject `ai/chat` has one trigger, `{"engine": "vllm"}`. A call for `ai/chat` with `{"engine":
"vllm", "scalerAddress": ...}` is the workload `ai/chat`. With `{"engine": "sglang"}` it is rejected with the sentence
of a call for `ai/made-up`, and the detail is `metadata.engine: the ScaledObject says 'vllm', the call says 'sglang'`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from exporter.model import WorkloadKey
from scaler.config.errors import shown
from scaler.config.trigger import FROM_ENV, KEDA_KEYS

ObjectName: TypeAlias = tuple[str, str]  # namespace, name: what a call names


class Doubt(Enum):
    """Why a call is rejected."""

    NOT_CONFIGURED = auto()  # no such configured workload
    MISMATCH = auto()  # no watched object has a trigger with this metadata
    INVALID = auto()  # it matches, and its metadata is invalid
    OBSERVED = auto()  # the workload is only observed
    NOT_SYNCED = auto()  # the cluster is not synced yet, or no longer


@dataclass(frozen=True, slots=True)
class CallRejected:
    """Why a call is refused.

    sentence: for the caller, with what to do; ASCII and short enough for a gRPC status.
    detail:   for the operator's log alone: what the watched objects say. ASCII; empty where the sentence says it all.
    """

    doubt: Doubt
    sentence: str
    detail: str = ""


class RejectedCall(Exception):  # noqa: N818 - an answer of its own kind, not a fault of ours
    """A call is rejected, and why."""

    def __init__(self, refused: CallRejected) -> None:
        super().__init__(refused.sentence)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class TriggerClaim:
    """The metadata of one trigger, and the outcome of a call with the same. metadata: as `spoken` leaves it."""

    metadata: Mapping[str, str]
    outcome: WorkloadKey | CallRejected


def authorize(
    objects: Mapping[ObjectName, Sequence[TriggerClaim]], namespace: str, name: str, metadata: Mapping[str, str]
) -> WorkloadKey:
    """Returns the workload that a call is for. Raises RejectedCall."""
    triggers = objects.get((namespace, name))
    metadata = spoken(metadata)
    outcome = next((claim.outcome for claim in triggers or () if claim.metadata == metadata), None)
    if isinstance(outcome, CallRejected):
        raise RejectedCall(outcome)
    if outcome is not None:
        return outcome
    called = plain(f"{namespace}/{name}")
    if too_long := too_large(metadata):
        raise RejectedCall(CallRejected(Doubt.INVALID, f"{called}: metadata: {too_long}"))
    sentence = (
        f"{called}: no watched ScaledObject or ScaledJob has an external trigger with this metadata. Changed a moment "
        "ago? The next call is answered anew. What differs is in Tidegate's log"
    )
    raise RejectedCall(CallRejected(Doubt.MISMATCH, sentence, _detail(triggers, metadata)))


def not_configured(workload: WorkloadKey) -> CallRejected:
    sentence = (
        f"{workload}: no such workload. Add it to Tidegate's configuration, or set `workload` in the trigger's "
        f"metadata to one that is there in namespace {workload.namespace}"
    )
    return CallRejected(Doubt.NOT_CONFIGURED, sentence)


def observed(workload: WorkloadKey) -> CallRejected:
    sentence = f"{workload}: only observed (`mode: observe`): controllers get no number"
    return CallRejected(Doubt.OBSERVED, sentence)


def _detail(triggers: Sequence[TriggerClaim] | None, metadata: Mapping[str, str]) -> str:
    """How the call differs from the trigger that is most like it."""
    if triggers is None:
        return (
            "no ScaledObject of that name is known; see whether `kubernetes.namespaces` in Tidegate's configuration "
            "leaves its namespace out"
        )
    if not triggers:
        return "the ScaledObject has no trigger of type external or external-push"
    nearest = min(triggers, key=lambda claim: len(metadata.items() ^ claim.metadata.items()))
    keys = sorted({key for key, _ in metadata.items() ^ nearest.metadata.items()})
    return listed(f"metadata.{plain(key)}: {_both(nearest.metadata.get(key), metadata.get(key))}" for key in keys)


def _both(watched: str | None, called: str | None) -> str:
    if watched is None:
        return f"the ScaledObject does not say it, the call says {shown(called or '')}"
    if called is None:
        return f"the ScaledObject says {shown(watched)}, the call does not say it"
    return f"the ScaledObject says {shown(watched)}, the call says {shown(called)}"


# An object may be 1.5 MiB of keys, each of which would be looked up for what it was meant to be (about 0.1 ms).
MOST_KEYS = 64
LONGEST_VALUE = 1024
# The gRPC server takes messages of 64 KiB. Half of it is for the keys that KEDA adds.
MOST_BYTES = 32 * 1024

# Errors travel in an HTTP/2 trailer, where 8 KiB is what a client must be ready to take.
_SHOWN_PROBLEMS = 8
_PLAIN = re.compile(r"[\w./-]{1,320}", re.ASCII)  # namespace/name, or a key as people write them


def spoken(metadata: Mapping[str, str]) -> dict[str, str]:
    """The metadata that a call and the watched object must agree on."""
    return {key: value for key, value in metadata.items() if key not in KEDA_KEYS and not key.endswith(FROM_ENV)}


def too_large(metadata: Mapping[str, str]) -> str | None:
    """Returns why this metadata is too large to be parsed, or None."""
    if len(metadata) > MOST_KEYS:
        return f"must have at most {MOST_KEYS} keys, got {len(metadata)}"
    for key, value in metadata.items():
        if len(key) > LONGEST_VALUE:
            return f"must have keys of at most {LONGEST_VALUE} characters, got {shown(key)}"
        if len(value) > LONGEST_VALUE:
            return f"must have values of at most {LONGEST_VALUE} characters, got {shown(value)} for {plain(key)}"
    size = sum(len(text.encode(errors="surrogatepass")) for pair in metadata.items() for text in pair)
    if size > MOST_BYTES:
        return f"must have at most {MOST_BYTES} bytes of keys and values together, got {size}"
    return None


def plain(name: str) -> str:
    """The name unchanged if it is unambiguous, else as `shown`."""
    return name if _PLAIN.fullmatch(name) else shown(name)


def listed(sentences: Iterable[str]) -> str:
    """All of them, as long as they fit into an error."""
    every = list(sentences)
    more = f"; and {len(every) - _SHOWN_PROBLEMS} more" if len(every) > _SHOWN_PROBLEMS else ""
    return "; ".join(every[:_SHOWN_PROBLEMS]) + more
