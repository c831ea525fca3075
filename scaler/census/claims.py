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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from exporter.model import WorkloadKey

from ..config.bad_words import shown
from .words import listed, plain, spoken, too_much

ObjectName: TypeAlias = tuple[str, str]  # namespace, name: what a call names


class Doubt(Enum):
    """Why a call is not believed."""

    NOBODY = auto()  # no such configured workload
    OTHERWISE = auto()  # no watched object has a trigger that says the same
    WORDS = auto()  # it says the same, and that cannot be
    OBSERVED = auto()  # the workload is only observed: nobody acts on it
    UNSEEN = auto()  # what the cluster says is not known yet, or no longer


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a call is refused.

    sentence: for the caller, with what to do; ASCII and short enough for a gRPC status.
    detail:   for the operator's log alone: what the watched objects say. ASCII; empty where the sentence says it all.
    """

    doubt: Doubt
    sentence: str
    detail: str = ""


class Unbelieved(Exception):  # noqa: N818 - an answer of its own kind, not a fault of ours
    """A call that speaks for nobody, and why."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.sentence)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Said:
    """What one trigger says, and whom a call that says the same speaks for. words: as `spoken` leaves them."""

    words: Mapping[str, str]
    outcome: WorkloadKey | Refused


def whose(
    objects: Mapping[ObjectName, Sequence[Said]], namespace: str, name: str, metadata: Mapping[str, str]
) -> WorkloadKey:
    """The workload that a call speaks for. Raises Unbelieved."""
    triggers = objects.get((namespace, name))
    words = spoken(metadata)
    outcome = next((said.outcome for said in triggers or () if said.words == words), None)
    if isinstance(outcome, Refused):
        raise Unbelieved(outcome)
    if outcome is not None:
        return outcome
    called = plain(f"{namespace}/{name}")
    if too_long := too_much(words):
        raise Unbelieved(Refused(Doubt.WORDS, f"{called}: metadata: {too_long}"))
    sentence = (
        f"{called}: no watched ScaledObject or ScaledJob has an external trigger with this metadata. Changed a moment "
        "ago? The next call is answered anew. What differs is in Tidegate's log"
    )
    raise Unbelieved(Refused(Doubt.OTHERWISE, sentence, _detail(triggers, words)))


def not_configured(workload: WorkloadKey) -> Refused:
    sentence = (
        f"{workload}: no such workload. Add it to Tidegate's configuration, or set `workload` in the trigger's "
        f"metadata to one that is there in namespace {workload.namespace}"
    )
    return Refused(Doubt.NOBODY, sentence)


def observed(workload: WorkloadKey) -> Refused:
    sentence = f"{workload}: only observed (`mode: observe`): nobody is told its number"
    return Refused(Doubt.OBSERVED, sentence)


def _detail(triggers: Sequence[Said] | None, words: Mapping[str, str]) -> str:
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
