"""What the triggers of one ScaledObject or ScaledJob say, and whom a call that says the same speaks for.

A cluster may have other external scalers, and Tidegate does not know its own address. A trigger is taken for ours if
its words are all ours and not only such as another scaler may have, or if `tidegate` is in the first label of the host
in its scalerAddress; only of ours are mistakes told to the log and by `tidegate check`, which reads triggers by this
module too. Every other external trigger is read as well: a call that says the same proves that it is meant for us, and
must hear what is wrong.

Worked example: ScaledObject `ai/chat` with the triggers `{"engine": "vllm"}`, `{"workload": "llama"}` and, named
`decode`, `{"engine": "sglang"}` makes `ai/chat` and `ai/chat/decode`; a call that says `workload: llama` speaks for
the configured workload `ai/llama`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import NamedTuple

from exporter.cluster.objects import ScaledObject, Trigger
from exporter.model import WorkloadKey

from ..config import Config, Replicas
from ..config.bad_words import BadWord, BadWords
from ..config.tenant import TriggerWorkload, bounds
from ..config.trigger import FROM_ENV, KEDAS, WORDS
from .claims import Doubt, Refused, not_configured, observed
from .make import Asked, make, read_words
from .words import listed, spoken

_EXTERNAL = frozenset({"external", "external-push"})
_REFERENCE = "workload"
# Other external scalers may well have these words too: alone they prove nothing.
_COMMON = frozenset({"model", "port", "path", "scheme", "mode", "group", "role", "weight", "ratio"})
_OUR_NAME = "tidegate"
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")  # fit for a label on /metrics and for a URL
# An object may be 1.5 MiB of triggers. Each is read, and each call is compared with all.
MOST_TRIGGERS = 64


class Verdict(NamedTuple):
    """Whom a trigger speaks for: a workload that it makes, a configured one that it names, or nobody, and why.

    scales: the configured workload that it names; also where that is only observed.
    """

    outcome: TriggerWorkload | WorkloadKey | Refused
    problems: tuple[BadWord, ...] = ()
    scales: WorkloadKey | None = None


class Heard(NamedTuple):
    """One external trigger. place: its index in `spec.triggers`. words: what a call must say too."""

    place: int
    words: Mapping[str, str]
    ours: bool
    verdict: Verdict

    @property
    def is_for_us(self) -> bool:
        """Its object asks Tidegate: it is ours, or it speaks for a workload. Then its problems are told."""
        return self.ours or not isinstance(self.verdict.outcome, Refused)


class Around(NamedTuple):
    """acting: the configured workloads, and whether the number of each may be asked for."""

    config: Config
    acting: Mapping[WorkloadKey, bool]


def heard(scaled: ScaledObject, around: Around) -> Iterator[Heard]:
    """The external triggers of an object, in order."""
    first: dict[frozenset[tuple[str, str]], int] = {}
    numbers = count()
    for index, trigger in enumerate(scaled.triggers[:MOST_TRIGGERS]):
        if trigger.type not in _EXTERNAL:
            continue
        words, ours = spoken(trigger.metadata), is_ours(trigger)
        twin = first.setdefault(frozenset(words.items()), index)
        configured = WorkloadKey(scaled.ref.namespace, scaled.ref.name)
        if twin != index:
            bound = f"must differ from that of spec.triggers.{twin}: KEDA's calls would not tell them apart"
            verdict = refused(BadWord("metadata", bound))
        elif _REFERENCE in words:
            verdict = _referring(trigger, scaled.ref.namespace, around)
        elif not words and configured in around.acting:
            verdict = _named(configured, around)
        else:
            number = next(numbers) if ours and not trigger.name else 0
            verdict = _making(trigger, configured._replace(trigger=trigger.name or str(number or "")), scaled, around)
        yield Heard(index, words, ours, verdict)


def is_ours(trigger: Trigger) -> bool:
    """Is a mistake in it one that Tidegate should speak of?"""
    if trigger.type not in _EXTERNAL:
        return False
    words = {key.removesuffix(FROM_ENV) for key in trigger.metadata} - set(KEDAS)
    if words - _COMMON and words <= WORDS.keys():
        return True
    # A target of gRPC: `dns:///my-tidegate.infra.svc:6000`. A scaler beside it in the namespace `tidegate` is another.
    host = trigger.metadata.get("scalerAddress", "").rpartition("/")[2].partition(":")[0]
    return _OUR_NAME in host.partition(".")[0].lower()


def too_many(scaled: ScaledObject) -> BadWord | None:
    """Why some of its triggers are not read, if so."""
    if len(scaled.triggers) <= MOST_TRIGGERS:
        return None
    return BadWord("spec.triggers", f"must be at most {MOST_TRIGGERS}: the rest is not read", str(len(scaled.triggers)))


def _referring(trigger: Trigger, namespace: str, around: Around) -> Verdict:
    """`workload: NAME`: the configuration's workload of that name."""
    try:
        read_words(trigger.metadata, "metadata")
    except BadWords as bad:
        return refused(*bad.problems)
    return _named(WorkloadKey(namespace, trigger.metadata[_REFERENCE]), around)


def _named(configured: WorkloadKey, around: Around) -> Verdict:
    acting = around.acting.get(configured)
    if acting is None:
        bound = "must be a workload of this namespace in Tidegate's configuration"
        return Verdict(not_configured(configured), (BadWord(f"metadata.{_REFERENCE}", bound, configured.name),))
    return Verdict(configured if acting else observed(configured), scales=configured)


def _making(trigger: Trigger, key: WorkloadKey, scaled: ScaledObject, around: Around) -> Verdict:
    """Words of its own."""
    if key in around.acting:
        bound = (
            f"must have no word of Tidegate's: the workload {key} is in Tidegate's configuration, whose word holds. "
            "Take it out there, or the words out here"
        )
        return refused(BadWord("metadata", bound))
    if key.trigger and not _NAME.fullmatch(key.trigger):
        bound = "must be letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, at most 63"
        return refused(BadWord("name", bound, key.trigger))
    asked = Asked(key, scaled.target, "metadata")
    made = make(asked, trigger.metadata, lambda _: _bounds(scaled), around.config)
    if made.workload is None:
        return refused(*made.problems)
    return Verdict(made.workload, made.problems)


def _bounds(scaled: ScaledObject) -> Replicas:
    if scaled.ref.kind == "ScaledJob":  # its minimum is of Jobs that KEDA keeps whatever it is told
        return bounds(0, scaled.maximum, None)
    return bounds(scaled.minimum, scaled.maximum, scaled.idle)


def refused(*problems: BadWord) -> Verdict:
    """A trigger that speaks for nobody, for these reasons."""
    errors = listed(str(problem) for problem in problems if problem.severity == "error")
    return Verdict(Refused(Doubt.WORDS, errors), problems)
