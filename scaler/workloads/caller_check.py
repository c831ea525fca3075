"""Whether a call is believed: only as far as the watched ScaledObject says the same.

It compares a caller's words with those of the triggers and never reads them: what a trigger's words mean, and what
is wrong with them, was found out when the object was watched. So a pod that reaches the port can neither invent a
workload nor change another's, and a flood of it costs look-ups.

A caller that does not match learns nothing about the objects of others: whether a ScaledObject exists, has no external
trigger, or says something else, it gets the same doubt and the same sentence. What differs is in `Refused.detail`, for
the operator's log.

Worked example: ScaledObject `ai/chat` has one trigger, `{"engine": "vllm"}`. A call for `ai/chat` with `{"engine":
"vllm", "scalerAddress": …}` is the workload `ai/chat`. With `{"engine": "sglang"}` it is refused in the same words as a
call for `ai/made-up`, and the detail is `metadata.engine: the ScaledObject says 'vllm', the call says 'sglang'`.

A trigger's metadata as words to compare, and strangers' text made fit for an error.

It knows which keys are KEDA's own and which values KEDA replaces; it refuses to know what a word means. KEDA hands on
all metadata of a trigger, its connection settings included, and of `…FromEnv` it keeps the name and puts in what the
environment says: those a watched object cannot be held to, and they may be secrets, so they are left out everywhere.

Worked example: `spoken({"scalerAddress": "tidegate:6000", "engine": "vllm", "tokenFromEnv": "hunter2"})` is
`{"engine": "vllm"}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from exporter.model import WorkloadKey
from scaler.config.errors import shown
from scaler.config.trigger import FROM_ENV, KEDAS

ObjectName: TypeAlias = tuple[str, str]  # namespace, name: what a call names


class Doubt(Enum):
    """Why a call is not believed."""

    NOBODY = auto()  # no such configured workload
    OTHERWISE = auto()  # no watched object has a trigger that says the same
    WORDS = auto()  # it says the same, and that cannot be
    OBSERVED = auto()  # the workload is only observed: nobody acts on it
    UNSEEN = auto()  # what the cluster says is not known yet, or no longer


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
    """A call that speaks for nobody, and why."""

    def __init__(self, refused: CallRejected) -> None:
        super().__init__(refused.sentence)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class TriggerClaim:
    """What one trigger says, and whom a call that says the same speaks for. words: as `spoken` leaves them."""

    words: Mapping[str, str]
    outcome: WorkloadKey | CallRejected


def whose(
    objects: Mapping[ObjectName, Sequence[TriggerClaim]], namespace: str, name: str, metadata: Mapping[str, str]
) -> WorkloadKey:
    """The workload that a call speaks for. Raises Unbelieved."""
    triggers = objects.get((namespace, name))
    words = spoken(metadata)
    outcome = next((said.outcome for said in triggers or () if said.words == words), None)
    if isinstance(outcome, CallRejected):
        raise RejectedCall(outcome)
    if outcome is not None:
        return outcome
    called = plain(f"{namespace}/{name}")
    if too_long := too_much(words):
        raise RejectedCall(CallRejected(Doubt.WORDS, f"{called}: metadata: {too_long}"))
    sentence = (
        f"{called}: no watched ScaledObject or ScaledJob has an external trigger with this metadata. Changed a moment "
        "ago? The next call is answered anew. What differs is in Tidegate's log"
    )
    raise RejectedCall(CallRejected(Doubt.OTHERWISE, sentence, _detail(triggers, words)))


def not_configured(workload: WorkloadKey) -> CallRejected:
    sentence = (
        f"{workload}: no such workload. Add it to Tidegate's configuration, or set `workload` in the trigger's "
        f"metadata to one that is there in namespace {workload.namespace}"
    )
    return CallRejected(Doubt.NOBODY, sentence)


def observed(workload: WorkloadKey) -> CallRejected:
    sentence = f"{workload}: only observed (`mode: observe`): nobody is told its number"
    return CallRejected(Doubt.OBSERVED, sentence)


def _detail(triggers: Sequence[TriggerClaim] | None, words: Mapping[str, str]) -> str:
    """How the call differs from the trigger that is most like it."""
    if triggers is None:
        return (
            "no ScaledObject of that name is known; see whether `kubernetes.namespaces` in Tidegate's configuration "
            "leaves its namespace out"
        )
    if not triggers:
        return "the ScaledObject has no trigger of type external or external-push"
    nearest = min(triggers, key=lambda said: len(words.items() ^ said.words.items()))
    keys = sorted({key for key, _ in words.items() ^ nearest.words.items()})
    return listed(f"metadata.{plain(key)}: {_both(nearest.words.get(key), words.get(key))}" for key in keys)


def _both(watched: str | None, called: str | None) -> str:
    if watched is None:
        return f"the ScaledObject does not say it, the call says {shown(called or '')}"
    if called is None:
        return f"the ScaledObject says {shown(watched)}, the call does not say it"
    return f"the ScaledObject says {shown(watched)}, the call says {shown(called)}"


# An object may be 1.5 MiB of keys, each of which would be looked up for what it was meant to be (about 0.1 ms).
MOST_WORDS = 64
LONGEST_WORD = 1024
# The gRPC server takes messages of 64 KiB. Half of it is for the keys that KEDA adds.
MOST_BYTES = 32 * 1024

# Errors travel in an HTTP/2 trailer, where 8 KiB is what a client must be ready to take.
_SHOWN_PROBLEMS = 8
_PLAIN = re.compile(r"[\w./-]{1,320}", re.ASCII)  # namespace/name, or a key as people write them


def spoken(metadata: Mapping[str, str]) -> dict[str, str]:
    """What a call and the watched object must agree on."""
    return {key: value for key, value in metadata.items() if key not in KEDAS and not key.endswith(FROM_ENV)}


def too_much(words: Mapping[str, str]) -> str | None:
    """Why nobody should try to read these words, if so."""
    if len(words) > MOST_WORDS:
        return f"must have at most {MOST_WORDS} keys, got {len(words)}"
    for key, value in words.items():
        if len(key) > LONGEST_WORD:
            return f"must have keys of at most {LONGEST_WORD} characters, got {shown(key)}"
        if len(value) > LONGEST_WORD:
            return f"must have values of at most {LONGEST_WORD} characters, got {shown(value)} for {plain(key)}"
    size = sum(len(text.encode(errors="surrogatepass")) for word in words.items() for text in word)
    if size > MOST_BYTES:
        return f"must have at most {MOST_BYTES} bytes of keys and values together, got {size}"
    return None


def plain(name: str) -> str:
    """A name as it stands if nobody could mistake it, else as `shown`."""
    return name if _PLAIN.fullmatch(name) else shown(name)


def listed(sentences: Iterable[str]) -> str:
    """All of them, as long as they fit into an error."""
    every = list(sentences)
    more = f"; and {len(every) - _SHOWN_PROBLEMS} more" if len(every) > _SHOWN_PROBLEMS else ""
    return "; ".join(every[:_SHOWN_PROBLEMS]) + more
