"""Parses the external triggers of ScaledObjects and ScaledJobs, and the metadata of annotations, into workloads. Pure.

A cluster may have other external scalers, and Tidegate does not know its own address. A trigger is Tidegate's if all
its keys are Tidegate's and one is not common among scalers, or if `tidegate` is in the first label of the host in its
scalerAddress. Errors are reported only for those. Every other external trigger is parsed too: a call with the same
metadata proves that the trigger is Tidegate's, and must get the error.

`config` defines the keys. This module adds what a cluster needs: limits on the size of objects, gateways that a
namespace may share, and names that Kubernetes allows and a workload cannot have. `Parsed` caches one value per version
of an object: a ScaledObject's status changes every few seconds and is no part of the version.

Worked example: ScaledObject `ai/chat` with the triggers `{"engine": "vllm"}`, `{"workload": "llama"}` and, named
`decode`, `{"engine": "sglang"}` makes `ai/chat` and `ai/chat/decode`; a call with `workload: llama` is for the
configured workload `ai/llama`. Of 1,000 ScaledObjects one is edited: only that one is parsed again.
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
from scaler.config.errors import TriggerErrors, TriggerProblem
from scaler.config.trigger import (
    FROM_ENV,
    KEDA_KEYS,
    PREFIXES,
    TRIGGER_KEYS,
    KeyOrigin,
    Trigger,
    TriggerWorkload,
    bounds,
    check_workload,
    read,
)
from scaler.config.workload import SCALED_JOB, job_problems

from .caller_check import CallRejected, Doubt, listed, not_configured, observed, spoken, too_large

_EXTERNAL = frozenset({"external", "external-push"})
_REFERENCE = "workload"
# Other external scalers may well have these words too: alone they prove nothing.
_COMMON = frozenset({"model", "port", "path", "scheme", "mode", "group", "role", "weight", "order", "ratio"})
_OUR_NAME = "tidegate"
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")  # fit for a label on /metrics and for a URL
# An object may be 1.5 MiB of triggers. Each is read, and each call is compared with all.
MOST_TRIGGERS = 64


class TriggerVerdict(NamedTuple):
    """The outcome of a trigger: a workload that it defines, a configured one that it names, or none, with the problems.

    scales: the configured workload that it names; also where that is only observed.
    """

    outcome: TriggerWorkload | WorkloadKey | CallRejected
    problems: tuple[TriggerProblem, ...] = ()
    scales: WorkloadKey | None = None


class ExternalTrigger(NamedTuple):
    """One external trigger. position: its index in `spec.triggers`. metadata: what a call must have too."""

    position: int
    metadata: Mapping[str, str]
    ours: bool
    verdict: TriggerVerdict

    @property
    def is_for_us(self) -> bool:
        """Whether the trigger calls Tidegate: by its address, or by naming a workload. Only then it has problems."""
        return self.ours or not isinstance(self.verdict.outcome, CallRejected)


class TriggerContext(NamedTuple):
    """acting: the configured workloads, and whether the number of each may be asked for."""

    config: Config
    acting: Mapping[WorkloadKey, bool]


def parse_triggers(scaled: ScaledObject, context: TriggerContext) -> Iterator[ExternalTrigger]:
    """The external triggers of an object, in order."""
    first: dict[frozenset[tuple[str, str]], int] = {}
    numbers = count()
    for index, trigger in enumerate(scaled.triggers[:MOST_TRIGGERS]):
        if trigger.type not in _EXTERNAL:
            continue
        metadata, ours = spoken(trigger.metadata), is_ours(trigger)
        twin = first.setdefault(frozenset(metadata.items()), index)
        configured = WorkloadKey(scaled.ref.namespace, scaled.ref.name)
        if twin != index:
            bound = f"must differ from that of spec.triggers.{twin}: KEDA's calls would not tell them apart"
            verdict = refused(TriggerProblem("metadata", bound))
        elif _REFERENCE in metadata:
            verdict = _referring(trigger, scaled.ref.namespace, context)
        elif not metadata and configured in context.acting:
            verdict = _named(configured, context)
        else:
            number = next(numbers) if ours and not trigger.name else 0
            verdict = _making(trigger, configured._replace(trigger=trigger.name or str(number or "")), scaled, context)
        yield ExternalTrigger(index, metadata, ours, verdict)


def is_ours(trigger: ScaledObjectTrigger) -> bool:
    """Is a mistake in it one that Tidegate should speak of?"""
    if trigger.type not in _EXTERNAL:
        return False
    metadata = {key.removesuffix(FROM_ENV) for key in trigger.metadata} - set(KEDA_KEYS)
    if metadata - _COMMON and metadata <= TRIGGER_KEYS.keys():
        return True
    # A target of gRPC: `dns:///my-tidegate.infra.svc:6000`. A scaler beside it in the namespace `tidegate` is another.
    host = trigger.metadata.get("scalerAddress", "").rpartition("/")[2].partition(":")[0]
    return _OUR_NAME in host.partition(".")[0].lower()


def too_many(scaled: ScaledObject) -> TriggerProblem | None:
    """Why some of its triggers are not read, if so."""
    if len(scaled.triggers) <= MOST_TRIGGERS:
        return None
    return TriggerProblem(
        "spec.triggers", f"must be at most {MOST_TRIGGERS}: the rest is not read", str(len(scaled.triggers))
    )


def _referring(trigger: ScaledObjectTrigger, namespace: str, context: TriggerContext) -> TriggerVerdict:
    """`workload: NAME`: the configuration's workload of that name."""
    try:
        read_metadata(trigger.metadata, "metadata")
    except TriggerErrors as bad:
        return refused(*bad.problems)
    return _named(WorkloadKey(namespace, trigger.metadata[_REFERENCE]), context)


def _named(configured: WorkloadKey, context: TriggerContext) -> TriggerVerdict:
    acting = context.acting.get(configured)
    if acting is None:
        bound = "must be a workload of this namespace in Tidegate's configuration"
        return TriggerVerdict(
            not_configured(configured), (TriggerProblem(f"metadata.{_REFERENCE}", bound, configured.name),)
        )
    return TriggerVerdict(configured if acting else observed(configured), scales=configured)


def _making(
    trigger: ScaledObjectTrigger, key: WorkloadKey, scaled: ScaledObject, context: TriggerContext
) -> TriggerVerdict:
    """The verdict on a trigger that describes a workload itself."""
    if key in context.acting:
        bound = (
            f"must have no key of Tidegate's: the workload {key} is in Tidegate's configuration, which takes "
            "precedence. Remove the workload there, or the keys here"
        )
        return refused(TriggerProblem("metadata", bound))
    if key.trigger and not _NAME.fullmatch(key.trigger):
        bound = "must be letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, at most 63"
        return refused(TriggerProblem("name", bound, key.trigger))
    source = WorkloadSource(key, scaled.target, "metadata")
    built = make(source, trigger.metadata, lambda _: _bounds(scaled), context.config)
    if built.workload is None:
        return refused(*built.problems)
    return TriggerVerdict(built.workload, built.problems)


def _bounds(scaled: ScaledObject) -> Replicas:
    if scaled.ref.kind == "ScaledJob":  # its minimum is a number of Jobs that KEDA keeps for any metric
        return bounds(0, scaled.maximum, None)
    return bounds(scaled.minimum, scaled.maximum, scaled.idle)


def refused(*problems: TriggerProblem) -> TriggerVerdict:
    """A trigger that is rejected, for these reasons."""
    errors = listed(str(problem) for problem in problems if problem.severity == "error")
    return TriggerVerdict(CallRejected(Doubt.INVALID, errors), problems)


Value = TypeVar("Value")


class WorkloadSource(NamedTuple):
    """The source of a workload. key: the workload's. target: the scaled object."""

    key: WorkloadKey
    target: Ref
    origin: KeyOrigin


class WorkloadResult(NamedTuple):
    """workload: None if a problem is an error."""

    workload: TriggerWorkload | None
    problems: tuple[TriggerProblem, ...]


def make(
    source: WorkloadSource, metadata: Mapping[str, str], bounds: Callable[[Trigger | None], Replicas], config: Config
) -> WorkloadResult:
    """bounds: between how many replicas, by the words where they were readable; raises TriggerErrors."""
    problems: list[TriggerProblem] = []
    trigger = _or_noted(problems, lambda: read_metadata(metadata, source.origin))
    replicas = _or_noted(problems, lambda: bounds(trigger))
    if trigger is None or replicas is None:
        return WorkloadResult(None, tuple(problems))
    workload = _or_noted(problems, lambda: _workload(source, trigger, replicas, config))
    if workload is not None:
        faults: Iterable[TriggerProblem] = check_workload(trigger, workload, config, origin=source.origin)
        if source.target.kind == SCALED_JOB:
            faults = job_problems(faults, workload, PREFIXES[source.origin])
        problems += faults
    if any(problem.severity == "error" for problem in problems):
        workload = None
    return WorkloadResult(workload, tuple(problems))


def read_metadata(metadata: Mapping[str, str], origin: KeyOrigin) -> Trigger:
    """Raises TriggerErrors; also for more than anybody would write, which is not looked into."""
    written = {key: value for key, value in metadata.items() if origin == "annotations" or key not in KEDA_KEYS}
    if problem := too_large(written):
        raise TriggerErrors((TriggerProblem(PREFIXES[origin].rstrip("./"), problem),))
    return read(written, origin=origin)


def _workload(source: WorkloadSource, trigger: Trigger, replicas: Replicas, config: Config) -> TriggerWorkload:
    shared = _shared(trigger.gateway, source.key.namespace, config)
    try:
        return trigger.workload(source.key, f"{source.target.kind}/{source.target.name}", replicas, shared)
    except ValidationError as error:  # Kubernetes allows names of one label of 253 characters, DNS does not
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise TriggerErrors((TriggerProblem(f"object.{key}", first["msg"], str(first["input"])),)) from None


def _shared(name: str | None, namespace: str, config: Config) -> Endpoint | None:
    """The page of a gateway that the namespace may share. One that it may not is not there for it."""
    return next((each.page for each in config.gateways if each.name == name and each.is_for(namespace)), None)


def _or_noted(problems: list[TriggerProblem], step: Callable[[], Value]) -> Value | None:
    try:
        return step()
    except TriggerErrors as bad:
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
    """The inputs of parsing the triggers of a ScaledObject or ScaledJob."""

    target: Ref
    minimum: int
    maximum: int
    idle: int | None
    triggers: tuple[Any, ...]

    @classmethod
    def of(cls, scaled: ScaledObject) -> TriggersVersion:
        return cls(scaled.target, scaled.minimum, scaled.maximum, scaled.idle, scaled.triggers)


class AnnotationsVersion(NamedTuple):
    """The inputs of parsing the annotations of a scalable object.

    bounds: of its HorizontalPodAutoscaler; None where it has none.
    """

    annotations: Any
    bounds: tuple[Ref, int, int] | None

    @classmethod
    def of(cls, scalable: Scalable, hpa: Hpa | None) -> AnnotationsVersion:
        return cls(scalable.annotations, None if hpa is None else (hpa.ref, hpa.minimum, hpa.maximum))
