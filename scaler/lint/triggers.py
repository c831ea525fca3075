"""Manifests -> everything that is wrong with what they say to Tidegate, before they are applied.

It reads the triggers of ScaledObjects and ScaledJobs and the `tidegate.dev/` annotations of what is scaled, as the
daemon will, and passes over everything else. What KEDA and Kubernetes want of a manifest is their business, except
where it keeps a trigger from working.

Worked example: for a ScaledObject whose trigger has the metadata `{scalerAddress: "tidegate:6000", engine: vlm}` there
is one error, `scaledobject.yaml:9:15: spec.triggers.0.metadata.engine: must be one of ..., got 'vlm'`.

What is to be said of the triggers of one ScaledObject or ScaledJob, as it stands in a manifest.

Which triggers are meant for Tidegate, and what is wrong with their words, the daemon's own reader says
(`census.triggers`). Here are the lines at which that stands, what keeps a trigger from reaching Tidegate, and what KEDA
makes of the counts and times around it.

Worked example: a ScaledObject without a minReplicaCount and with the trigger `{scalerAddress: "tidegate:6000", engine:
vllm}` has one warning: its minimum is 0, KEDA's default, and without a gateway nothing could wake it.

What of KEDA's own words works against scaling to zero, where a ScaledObject carries it: fallback, pauses, cron.

Observed on KEDA 2.19.0 and 2.20.2: a fallback marks the trigger active, so it lifts zero to its count; with a count of
zero its error no longer blocks scaling to zero; it never engages while GetMetricSpec fails, that is, while the scaler
is wholly unreachable. Unpausing after the cooldown is over scales to zero within the second.

Worked example: a ScaledObject with the annotation `autoscaling.keda.sh/paused: "true"` and a minReplicaCount of 0 has
one warning, at that annotation, which names `tidegate.dev/brake` as the way to hold replicas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from exporter.kubernetes.objects import Ref, ScaledObject, ScaledObjectTrigger
from exporter.model import WorkloadKey
from scaler.config.errors import BadWord, BadWords, Loc, Problem, dotted
from scaler.config.model import Config
from scaler.config.rules import (
    ANNOTATION_NOT_READ,
    COOLDOWN_ADDS_UP,
    CRON_BESIDE,
    FALLBACK,
    METRIC_TYPE,
    PAUSED,
    WAKES_BY_POLLING,
)
from scaler.config.scalars import write_duration
from scaler.config.trigger import ANNOTATION, BRAKE, CHECK_IGNORE, Trigger, TriggerWorkload, bounds
from scaler.config.validate_workload import brake_findings
from scaler.config.workload import SCALED_JOB, Replicas
from scaler.config.yaml import DocumentValue, documents
from scaler.policy.overrides import OverrideError, read_brake
from scaler.workloads import triggers
from scaler.workloads.registry import name_in_use
from scaler.workloads.triggers import ExternalTrigger, TriggerContext, WorkloadSource, heard, make, too_many

from .findings import Remark, of_word, problem

# Rendered charts of a whole platform are larger than a configuration, and their YAML is read at about 200 kB/s.
LARGEST_BYTES = 4 * 2**20

ANNOTATED = ("Deployment", "StatefulSet", "LeaderWorkerSet", "Rollout")
_SCALED = ("ScaledObject", "ScaledJob")
_SAYS_KIND = re.compile(r"^[ \t{-]*[\"']?kind[\"']?\s*:", re.MULTILINE)
_SAYS_VERSION = re.compile(r"^[ \t{-]*[\"']?apiVersion[\"']?\s*:", re.MULTILINE)
_ANNOTATIONS = ("metadata", "annotations")
_TEMPLATE = ("spec", "template", "metadata", "annotations")


class Checked(NamedTuple):
    """problems: in the order of the text. passed_over: documents that say nothing to Tidegate."""

    problems: list[Problem]
    passed_over: int


def is_manifest(text: str) -> bool:
    """It is Kubernetes' YAML and no configuration of Tidegate: a configuration has no apiVersion."""
    return _SAYS_VERSION.search(text) is not None and _SAYS_KIND.search(text) is not None


def check_manifests(text: str, file: str, config: Config | None, now: float | None = None) -> Checked:
    """What is to be said of manifests.

    config: what they will meet; None: not known, defaults are assumed. now: POSIX seconds; None: brakes that are over
    are not looked for.
    """
    found, troubles = documents(text)
    problems = [Problem(file, *trouble.mark, dotted(trouble.loc), trouble.message) for trouble in troubles]
    passed_over = 0
    for thing in (one for document in found for one in _objects(document)):
        remarks = remarks_on(thing, config, now)
        passed_over += remarks is None
        problems += [problem(thing, file, remark) for remark in remarks or ()]
    problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0, problem.key))
    return Checked(problems, passed_over)


def _objects(document: DocumentValue) -> Iterator[DocumentValue]:
    if document.read("kind") == "List":
        for item in document.items("items"):
            yield from _objects(item)
    elif document.entries():  # an empty document is what two `---` in a row make
        yield document


def remarks_on(thing: DocumentValue, config: Config | None, now: float | None) -> list[Remark] | None:
    """What is to be said of the words of one object; None: it has none for Tidegate."""
    kind = thing.read("kind")
    is_scaled = kind in _SCALED and thing.read("apiVersion").startswith("keda.sh/")
    own, below = _annotations(thing, _ANNOTATIONS), _annotations(thing, _TEMPLATE)
    brake = own.pop(ANNOTATION + BRAKE, None)
    own.pop(ANNOTATION + CHECK_IGNORE, None)
    of_triggers = remarks_on_scaled(thing, config) if is_scaled else None
    if of_triggers is not None:
        remarks = of_triggers
    elif own or below or brake is not None:
        remarks = []
    else:
        return None
    if brake is not None:
        remarks += _braked(brake, is_scaled or kind in ANNOTATED, now)
    if own and kind in ANNOTATED:
        remarks += _annotated(thing, own, config)
    elif own:
        better = (
            f"the metadata of its trigger says it; only {ANNOTATION}{BRAKE} is"
            if is_scaled
            else f"it is read on {', '.join(ANNOTATED)}"
        )
        remarks.append(
            Remark(
                (*_ANNOTATIONS, next(iter(own))),
                f"is not read on a {kind}: {better}",
                "warning",
                rule=ANNOTATION_NOT_READ,
            )
        )
    if below:
        better = f"is not read on pods: annotate the {kind} itself"
        remarks.append(Remark((*_TEMPLATE, next(iter(below))), better, "warning", rule=ANNOTATION_NOT_READ))
    return remarks


def _braked(brake: DocumentValue, is_read: bool, now: float | None) -> Iterator[Remark]:
    at = (*_ANNOTATIONS, ANNOTATION + BRAKE)
    if not is_read:
        better = f"is not read there: it is read on ScaledObject, ScaledJob, {', '.join(ANNOTATED)}"
        yield Remark(at, better, "warning", rule=ANNOTATION_NOT_READ)
        return
    yield from remarks_on_strings({at[-1]: brake}, _ANNOTATIONS)
    if brake.text is None:
        return
    try:
        order = read_brake(brake.text)
    except OverrideError as bad:
        yield Remark(at, f"{bad}. Until then it counts as never_down", got=brake.text)
        return
    for finding in brake_findings(at, order, now):
        yield Remark(at, finding.message, finding.severity, rule=finding.rule)


def _annotated(thing: DocumentValue, annotations: dict[str, DocumentValue], config: Config | None) -> Iterator[Remark]:
    yield from remarks_on_strings(annotations, _ANNOTATIONS)
    words = {key.removeprefix(ANNOTATION): value.text for key, value in annotations.items() if value.text is not None}
    name, namespace = thing.read("metadata", "name"), thing.read("metadata", "namespace") or "default"
    ref = Ref(namespace, thing.read("kind"), name)
    made = make(WorkloadSource(WorkloadKey(namespace, name), ref, "annotations"), words, _bounds, assumed(config))
    for word in made.problems:
        holder, _, key = word.key.partition(".")
        # What is scaled is the object itself: its name is the target's.
        loc = {"object": ("metadata", key), "spec": ("metadata", "name")}.get(holder, (*_ANNOTATIONS, word.key))
        yield of_word(word, loc)


def _bounds(trigger: Trigger | None) -> Replicas:
    """What is not written, the HPA's minReplicas and maxReplicas will say; and an HPA has 1 at least."""
    replicas = trigger.replicas if trigger is not None else Replicas()
    return replicas if "min" in replicas.model_fields_set else replicas.model_copy(update={"min": 1})


def _annotations(thing: DocumentValue, path: tuple[str, ...]) -> dict[str, DocumentValue]:
    return {key: value for key, value in thing.below(*path).items() if key.startswith(ANNOTATION)}


# KEDA's own defaults.
_MINIMUM, _MAXIMUM = 0, 100
_COOLDOWN_S, _POLLING_S = 300, 30
_SHORT_COOLDOWN_S = 60  # no more than a poll or two: the shipped examples have 30


def is_ours(trigger: DocumentValue) -> bool:
    """It is meant for Tidegate: its address says so, or its words do."""
    return triggers.is_ours(_trigger(trigger))


def assumed(config: Config | None) -> Config:
    """The configuration that a manifest will meet; with every default where it is not known."""
    return config or Config.model_validate({"kubernetes": {}})


def remarks_on_strings(values: Mapping[str, DocumentValue], at: Loc) -> Iterator[Remark]:
    """Kubernetes refuses metadata and annotations that are no strings."""
    for key, value in values.items():
        if value.text is None:
            yield Remark((*at, key), "must be a string, and no mapping or list")
        elif not value.is_string:
            yield Remark((*at, key), "must be a string: put it in quotes", got=value.text)


def remarks_on_scaled(thing: DocumentValue, config: Config | None) -> list[Remark] | None:
    """None: it does not ask Tidegate. thing: a ScaledObject or ScaledJob. config: that it will meet; None: unknown."""
    scaled = _record(thing)
    said = [one for one in heard(scaled, _around(scaled, config)) if one.is_for_us]
    if not said:
        return None
    remarks: list[Remark] = []
    workloads: set[WorkloadKey] = set()
    for trigger in said:
        at: Loc = ("spec", "triggers", trigger.position)
        remarks += _plumbing(thing.items("spec", "triggers")[trigger.position], at)
        problems, outcome = trigger.verdict.problems, trigger.verdict.outcome
        if isinstance(outcome, TriggerWorkload):
            problems = (name_in_use(outcome, scaled),) if outcome.key in workloads else problems
            workloads.add(outcome.key)
        remarks += (_with_default(of_word(word, _loc(word, at)), thing) for word in problems)
        remarks += _polling(trigger, at, scaled)
    if (problem := too_many(scaled)) is not None:
        remarks.append(of_word(problem, ("spec", "triggers")))
    replicas = _replicas(scaled)
    remarks += fallback_remarks(thing, replicas)
    remarks += pause_remarks(thing, replicas)
    remarks += cron_remarks(thing)
    kept_warm = [one.constant_keep_warm for each in said if (one := _sleeper(each, scaled)) is not None]
    remarks += _cooldown(thing, max(kept_warm)) if kept_warm else ()
    return list(dict.fromkeys(remarks))  # wrong counts are wrong for each of its triggers


def _record(thing: DocumentValue) -> ScaledObject:
    """The object as the daemon would have it; what is missing is empty."""
    kind, namespace = thing.read("kind"), thing.read("metadata", "namespace") or "default"
    ref = Ref(namespace, kind, thing.read("metadata", "name"))
    target = thing.read("spec", "scaleTargetRef", "kind") or "Deployment", thing.read("spec", "scaleTargetRef", "name")
    return ScaledObject(
        ref,
        ref if kind == SCALED_JOB else Ref(namespace, *target),
        minimum=_count(thing, "minReplicaCount", _MINIMUM),
        maximum=_count(thing, "maxReplicaCount", _MAXIMUM),
        idle=thing.count("spec", "idleReplicaCount"),
        triggers=tuple(_trigger(trigger) for trigger in thing.items("spec", "triggers")),
    )


def _trigger(trigger: DocumentValue) -> ScaledObjectTrigger:
    metadata = {key: value.text for key, value in trigger.below("metadata").items() if value.text is not None}
    return ScaledObjectTrigger(trigger.read("type"), trigger.read("name") or None, metadata)


def _around(scaled: ScaledObject, config: Config | None) -> TriggerContext:
    """Of a configuration that is not known, whatever workload a trigger names is taken to be there."""
    if config is not None:
        return TriggerContext(config, {workload.key: not config.observes(workload) for workload in config.workloads})
    named = (trigger.metadata.get("workload") for trigger in scaled.triggers)
    return TriggerContext(assumed(None), {WorkloadKey(scaled.ref.namespace, name): True for name in named if name})


def _replicas(scaled: ScaledObject) -> Replicas | None:
    """None where the object says what cannot be."""
    try:
        return bounds(scaled.minimum, scaled.maximum, scaled.idle)
    except BadWords:
        return None


def _sleeper(trigger: ExternalTrigger, scaled: ScaledObject) -> TriggerWorkload | None:
    """The workload that it makes, if that goes to zero and comes back. KEDA hears no push for a ScaledJob, and its Jobs
    know no cooldown.
    """
    workload = trigger.verdict.outcome
    if not isinstance(workload, TriggerWorkload) or scaled.ref.kind == SCALED_JOB:
        return None
    return workload if workload.replicas.sleeps and workload.gateway is not None else None


def _polling(trigger: ExternalTrigger, at: Loc, scaled: ScaledObject) -> Iterator[Remark]:
    if _sleeper(trigger, scaled) is not None and scaled.triggers[trigger.position].type == "external":
        message = (
            f"wakes only when KEDA polls (pollingInterval, {_POLLING_S} s by default): external-push wakes at once"
        )
        yield Remark((*at, "type"), message, "warning", rule=WAKES_BY_POLLING)


def _cooldown(thing: DocumentValue, kept_warm: float) -> Iterator[Remark]:
    """kept_warm: seconds for which Tidegate keeps it, before KEDA begins to count."""
    written = thing.count("spec", "cooldownPeriod")
    cooldown = _COOLDOWN_S if written is None else written
    if cooldown <= _SHORT_COOLDOWN_S:
        return
    left_out = f"is {write_duration(cooldown)} where it is left out and " if written is None else ""
    message = (
        f"{left_out}begins when keep_warm ({write_duration(kept_warm)}) is over: asleep after "
        f"{write_duration(kept_warm + cooldown)}; set it to 30 or less"
    )
    got = None if written is None else str(written)
    yield Remark(("spec", "cooldownPeriod"), message, "warning", got, COOLDOWN_ADDS_UP)


def _with_default(remark: Remark, thing: DocumentValue) -> Remark:
    if remark.loc != ("spec", "minReplicaCount") or thing.at(*remark.loc) is not None:
        return remark
    return remark._replace(message=f"{remark.message}; left out, it is {_MINIMUM}")


def _plumbing(trigger: DocumentValue, at: Loc) -> Iterator[Remark]:
    """What keeps a trigger from reaching Tidegate at all."""
    metadata = trigger.below("metadata")
    yield from remarks_on_strings(metadata, (*at, "metadata"))
    if "scalerAddress" not in metadata and "scalerAddressFromEnv" not in metadata:
        yield Remark((*at, "metadata", "scalerAddress"), "must be given: it says where Tidegate is")
    holder = trigger.at("metadata")
    for key in sorted(holder.repeated()) if holder is not None else ():
        yield Remark((*at, "metadata", key), "duplicate key: which one holds is chance")
    if trigger.read("metricType") not in {"", "AverageValue"}:
        bound = "must be AverageValue or be left out: the metric is a number of replicas, with target 1"
        yield Remark((*at, "metricType"), bound, got=trigger.read("metricType"), rule=METRIC_TYPE)


def _loc(word: BadWord, at: Loc) -> Loc:
    """Where a word stands; `spec` and `object` are the object's, `metadata` the trigger's."""
    holder, _, key = word.key.partition(".")
    if holder == "object":
        return ("metadata", key)
    return ("spec", key) if holder == "spec" else (*at, holder, key) if key else (*at, holder)


def _count(thing: DocumentValue, key: str, usual: int) -> int:
    count = thing.count("spec", key)
    return usual if count is None else count


_PAUSED = "autoscaling.keda.sh/paused"
_BETTER = 'tidegate.dev/brake: "freeze until ..." holds it and ends by itself'
_UNREACHED = "and none engages while Tidegate cannot be reached at all"


def fallback_remarks(thing: DocumentValue, replicas: Replicas | None) -> Iterator[Remark]:
    """replicas: the ScaledObject's bounds; None where they are not known."""
    if thing.at("spec", "fallback") is None:
        return
    at, count = ("spec", "fallback"), thing.count("spec", "fallback", "replicas")
    sleeps = replicas is None or replicas.sleeps
    if count == 0 and sleeps:
        message = f"goes to zero when Tidegate knows nothing, under load too, {_UNREACHED}"
    elif sleeps:
        message = f"wakes every sleeper when Tidegate knows nothing, {_UNREACHED}"
    else:
        message = f"sets a number of replicas, whatever the load, when Tidegate knows nothing, {_UNREACHED}"
    yield Remark(at, f"{message}: without it KEDA keeps what there is", "warning", rule=FALLBACK)


def pause_remarks(thing: DocumentValue, replicas: Replicas | None) -> Iterator[Remark]:
    """Pauses are KEDA's: Tidegate is not asked while they last, and they have no end."""
    sleeps = replicas is None or replicas.sleeps
    for key, value in thing.below(*_ANNOTATIONS).items():
        if value.text == "false":
            continue
        message = {
            _PAUSED: "takes the HPA away; unpaused after its cooldownPeriod, it drops to zero at once"
            if sleeps
            else "takes the HPA away, and nothing is scaled until it is taken back",
            f"{_PAUSED}-replicas": "sets that many replicas at once, past Tidegate"
            + ("; unpaused after its cooldownPeriod, it drops to zero at once" if sleeps else ""),
            f"{_PAUSED}-scale-in": "has no end, and keeps it from going to zero as long",
            f"{_PAUSED}-scale-out": "keeps it from waking, whatever waits for it",
        }.get(key)
        if message is not None:
            yield Remark((*_ANNOTATIONS, key), f"{message}: {_BETTER}", "warning", rule=PAUSED)


def cron_remarks(thing: DocumentValue) -> Iterator[Remark]:
    """A cron trigger beside ours."""
    for index, trigger in enumerate(thing.items("spec", "triggers")):
        if trigger.read("type") == "cron":
            message = (
                "holds its replicas beside Tidegate's, cold at the beginning and without Tidegate's knowing: the word "
                "schedules of its trigger says the same, with a pre-warm"
            )
            yield Remark(("spec", "triggers", index, "type"), message, "warning", rule=CRON_BESIDE)
