"""What the triggers of one ScaledObject or ScaledJob say, and whom a call that says the same speaks for.

A cluster may have other external scalers, and Tidegate does not know its own address. A trigger is taken for ours if
its words are all ours and not only such as another scaler may have, or if `tidegate` is in the first label of the host
in its scalerAddress; only of ours are mistakes told to the log and by `tidegate check`, which reads triggers by this
module too. Every other external trigger is read as well: a call that says the same proves that it is meant for us, and
must hear what is wrong.

Worked example: ScaledObject `ai/chat` with the triggers `{"engine": "vllm"}`, `{"workload": "llama"}` and, named
`decode`, `{"engine": "sglang"}` makes `ai/chat` and `ai/chat/decode`; a call that says `workload: llama` speaks for
the configured workload `ai/llama`.

A tenant's words -> a workload, or all that is wrong with them. The same for a trigger and for annotations.

What the words mean is the configuration's business. Here is what a cluster adds: objects too large to be read, the
gateways that a namespace may share, and names that Kubernetes allows and a workload cannot have.

Worked example: `gateway: llm-d` in namespace `ai` is the page of the configuration's shared gateway `llm-d` if that is
for `ai`, and else the Service `ai/llm-d`, whether or not other namespaces share a gateway of that name.

Keeps what each object of the cluster said, so that an object is parsed once per version of what it says.

A ScaledObject's status changes every few seconds and is not parsed: a version is another one only if something that is
parsed has changed. Holds for one configuration, because the configuration decides what words mean.

Worked example: of 1,000 ScaledObjects one is edited: the next census parses that one, and takes the other 999 as they
were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from exporter.kubernetes.objects import Hpa, Ref, Scalable, ScaledObject, ScaledObjectTrigger
from exporter.model import WorkloadKey
from scaler.config import Config, Endpoint, Replicas
from scaler.config.errors import BadWord, BadWords
from scaler.config.trigger import (
    FROM_ENV,
    KEDAS,
    PREFIXES,
    WORDS,
    Place,
    Trigger,
    TriggerWorkload,
    bounds,
    check_workload,
    read,
)
from scaler.config.workload import SCALED_JOB, said_of_jobs

from .caller_check import CallRejected, Doubt, listed, not_configured, observed, spoken, too_much

_EXTERNAL = frozenset({"external", "external-push"})
_REFERENCE = "workload"
# Other external scalers may well have these words too: alone they prove nothing.
_COMMON = frozenset({"model", "port", "path", "scheme", "mode", "group", "role", "weight", "ratio"})
_OUR_NAME = "tidegate"
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")  # fit for a label on /metrics and for a URL
# An object may be 1.5 MiB of triggers. Each is read, and each call is compared with all.
MOST_TRIGGERS = 64


class TriggerVerdict(NamedTuple):
    """Whom a trigger speaks for: a workload that it makes, a configured one that it names, or nobody, and why.

    scales: the configured workload that it names; also where that is only observed.
    """

    outcome: TriggerWorkload | WorkloadKey | CallRejected
    problems: tuple[BadWord, ...] = ()
    scales: WorkloadKey | None = None


class ExternalTrigger(NamedTuple):
    """One external trigger. place: its index in `spec.triggers`. words: what a call must say too."""

    place: int
    words: Mapping[str, str]
    ours: bool
    verdict: TriggerVerdict

    @property
    def is_for_us(self) -> bool:
        """Its object asks Tidegate: it is ours, or it speaks for a workload. Then its problems are told."""
        return self.ours or not isinstance(self.verdict.outcome, CallRejected)


class Around(NamedTuple):
    """acting: the configured workloads, and whether the number of each may be asked for."""

    config: Config
    acting: Mapping[WorkloadKey, bool]


def heard(scaled: ScaledObject, around: Around) -> Iterator[ExternalTrigger]:
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
        yield ExternalTrigger(index, words, ours, verdict)


def is_ours(trigger: ScaledObjectTrigger) -> bool:
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


def _referring(trigger: ScaledObjectTrigger, namespace: str, around: Around) -> TriggerVerdict:
    """`workload: NAME`: the configuration's workload of that name."""
    try:
        read_words(trigger.metadata, "metadata")
    except BadWords as bad:
        return refused(*bad.problems)
    return _named(WorkloadKey(namespace, trigger.metadata[_REFERENCE]), around)


def _named(configured: WorkloadKey, around: Around) -> TriggerVerdict:
    acting = around.acting.get(configured)
    if acting is None:
        bound = "must be a workload of this namespace in Tidegate's configuration"
        return TriggerVerdict(not_configured(configured), (BadWord(f"metadata.{_REFERENCE}", bound, configured.name),))
    return TriggerVerdict(configured if acting else observed(configured), scales=configured)


def _making(trigger: ScaledObjectTrigger, key: WorkloadKey, scaled: ScaledObject, around: Around) -> TriggerVerdict:
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
    asked = WorkloadSource(key, scaled.target, "metadata")
    made = make(asked, trigger.metadata, lambda _: _bounds(scaled), around.config)
    if made.workload is None:
        return refused(*made.problems)
    return TriggerVerdict(made.workload, made.problems)


def _bounds(scaled: ScaledObject) -> Replicas:
    if scaled.ref.kind == "ScaledJob":  # its minimum is of Jobs that KEDA keeps whatever it is told
        return bounds(0, scaled.maximum, None)
    return bounds(scaled.minimum, scaled.maximum, scaled.idle)


def refused(*problems: BadWord) -> TriggerVerdict:
    """A trigger that speaks for nobody, for these reasons."""
    errors = listed(str(problem) for problem in problems if problem.severity == "error")
    return TriggerVerdict(CallRejected(Doubt.WORDS, errors), problems)


Value = TypeVar("Value")


class WorkloadSource(NamedTuple):
    """What a workload is made for. key: its own. target: what is scaled."""

    key: WorkloadKey
    target: Ref
    place: Place


class Made(NamedTuple):
    """workload: None if a problem is an error."""

    workload: TriggerWorkload | None
    problems: tuple[BadWord, ...]


def make(
    asked: WorkloadSource, words: Mapping[str, str], bounds: Callable[[Trigger | None], Replicas], config: Config
) -> Made:
    """bounds: between how many replicas, by the words where they were readable; raises BadWords."""
    problems: list[BadWord] = []
    trigger = _or_noted(problems, lambda: read_words(words, asked.place))
    replicas = _or_noted(problems, lambda: bounds(trigger))
    if trigger is None or replicas is None:
        return Made(None, tuple(problems))
    workload = _or_noted(problems, lambda: _workload(asked, trigger, replicas, config))
    if workload is not None:
        said: Iterable[BadWord] = check_workload(trigger, workload, config, origin=asked.place)
        if asked.target.kind == SCALED_JOB:
            said = said_of_jobs(said, workload, PREFIXES[asked.place])
        problems += said
    if any(problem.severity == "error" for problem in problems):
        workload = None
    return Made(workload, tuple(problems))


def read_words(words: Mapping[str, str], place: Place) -> Trigger:
    """Raises BadWords; also for more than anybody would write, which is not looked into."""
    written = {key: value for key, value in words.items() if place == "annotations" or key not in KEDAS}
    if problem := too_much(written):
        raise BadWords((BadWord(PREFIXES[place].rstrip("./"), problem),))
    return read(written, origin=place)


def _workload(asked: WorkloadSource, trigger: Trigger, replicas: Replicas, config: Config) -> TriggerWorkload:
    shared = _shared(trigger.gateway, asked.key.namespace, config)
    try:
        return trigger.workload(asked.key, f"{asked.target.kind}/{asked.target.name}", replicas, shared)
    except ValidationError as error:  # Kubernetes allows names of one label of 253 characters, DNS does not
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise BadWords((BadWord(f"object.{key}", first["msg"], str(first["input"])),)) from None


def _shared(name: str | None, namespace: str, config: Config) -> Endpoint | None:
    """The page of a gateway that the namespace may share. One that it may not is not there for it."""
    return next((each.page for each in config.gateways if each.name == name and each.is_for(namespace)), None)


def _or_noted(problems: list[BadWord], step: Callable[[], Value]) -> Value | None:
    try:
        return step()
    except BadWords as bad:
        problems.extend(bad.problems)
        return None


class Parsed(Generic[Value]):
    """Values by the object that they were parsed from."""

    def __init__(self) -> None:
        self._kept: dict[Ref, tuple[Any, Value]] = {}

    def get(self, ref: Ref, version: Any, parse: Callable[[], Value]) -> Value:
        """The value of this version of an object; `parse` makes it where it is not there yet.

        version: what the value depends on, compared with `==`; parts that are the same object are not compared further.
        """
        kept = self._kept.get(ref)
        if kept is not None and kept[0] == version:
            return kept[1]
        value = parse()
        self._kept[ref] = version, value
        return value

    def keep_only(self, refs: Collection[Ref]) -> None:
        """Forgets objects that are no more."""
        if len(self._kept) > len(refs):
            self._kept = {ref: kept for ref, kept in self._kept.items() if ref in refs}


class TriggersVersion(NamedTuple):
    """What the triggers of a ScaledObject or ScaledJob are parsed from."""

    target: Ref
    minimum: int
    maximum: int
    idle: int | None
    triggers: tuple[Any, ...]

    @classmethod
    def of(cls, scaled: ScaledObject) -> TriggersVersion:
        return cls(scaled.target, scaled.minimum, scaled.maximum, scaled.idle, scaled.triggers)


class AnnotationsVersion(NamedTuple):
    """What the annotations of a scalable object are parsed from.

    bounds: of its HorizontalPodAutoscaler; None where it has none.
    """

    annotations: Any
    bounds: tuple[Ref, int, int] | None

    @classmethod
    def of(cls, scalable: Scalable, hpa: Hpa | None) -> AnnotationsVersion:
        return cls(scalable.annotations, None if hpa is None else (hpa.ref, hpa.minimum, hpa.maximum))
