"""Whether a call is believed: only as far as the watched ScaledObject says the same.

It compares a caller's words with those of the triggers and never reads them: what a trigger's words mean, and what
is wrong with them, was found out when the object was watched. So a pod that reaches the port can neither invent a
workload nor change another's, and a flood of it costs look-ups.

Worked example: ScaledObject `ai/chat` has one trigger, `{"engine": "vllm"}`. A call for `ai/chat` with `{"engine":
"vllm", "scalerAddress": …}` is the workload `ai/chat`; with `{"engine": "sglang"}` it is told `metadata.engine: the
ScaledObject says 'vllm', the call says 'sglang'`; one for `ai/made-up` is told that no such ScaledObject is known.
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

    NOBODY = auto()  # no such object, trigger or configured workload
    OTHERWISE = auto()  # the watched object says something else
    WORDS = auto()  # it says the same, and that cannot be
    OBSERVED = auto()  # the workload is only observed: nobody acts on it
    UNSEEN = auto()  # what the cluster says is not known yet, or no longer


@dataclass(frozen=True, slots=True)
class Refused:
    """sentence: for the person who wrote the trigger, with what to do; ASCII and short enough for a gRPC status."""

    doubt: Doubt
    sentence: str


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
    called = plain(f"{namespace}/{name}")
    triggers = objects.get((namespace, name))
    if triggers is None:
        raise _unbelieved(
            Doubt.NOBODY,
            f"{called}: no ScaledObject of that name is known. Made a moment ago? The next call is answered anew. Else "
            "see whether `kubernetes.namespaces` in Tidegate's configuration leaves its namespace out",
        )
    if not triggers:
        sentence = f"{called}: its ScaledObject has no trigger of type external or external-push. {_ANEW}"
        raise _unbelieved(Doubt.NOBODY, sentence)
    words = spoken(metadata)
    outcome = next((said.outcome for said in triggers if said.words == words), None)
    if isinstance(outcome, Refused):
        raise Unbelieved(outcome)
    if outcome is not None:
        return outcome
    if too_long := too_much(words):
        raise _unbelieved(Doubt.WORDS, f"{called}: metadata: {too_long}")
    raise _unbelieved(Doubt.OTHERWISE, f"{called}: {_difference(triggers, words)}. {_ANEW}")


def not_configured(workload: WorkloadKey) -> Refused:
    sentence = (
        f"{workload}: no such workload. Add it to Tidegate's configuration, or set `workload` in the trigger's "
        f"metadata to one that is there in namespace {workload.namespace}"
    )
    return Refused(Doubt.NOBODY, sentence)


def observed(workload: WorkloadKey) -> Refused:
    sentence = f"{workload}: only observed (`mode: observe`): nobody is told its number"
    return Refused(Doubt.OBSERVED, sentence)


_ANEW = "Changed a moment ago? The next call is answered anew"


def _unbelieved(doubt: Doubt, sentence: str) -> Unbelieved:
    return Unbelieved(Refused(doubt, sentence))


def _difference(triggers: Sequence[Said], words: Mapping[str, str]) -> str:
    """How the call differs from the trigger that is most like it."""
    nearest = min(triggers, key=lambda said: len(words.items() ^ said.words.items()))
    keys = sorted({key for key, _ in words.items() ^ nearest.words.items()})
    return listed(f"metadata.{plain(key)}: {_both(nearest.words.get(key), words.get(key))}" for key in keys)


def _both(watched: str | None, called: str | None) -> str:
    if watched is None:
        return f"the ScaledObject does not say it, the call says {shown(called or '')}"
    if called is None:
        return f"the ScaledObject says {shown(watched)}, the call does not say it"
    return f"the ScaledObject says {shown(watched)}, the call says {shown(called)}"
