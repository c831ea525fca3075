"""Checks what manifests tell Tidegate: triggers, `tidegate.dev/` annotations, and settings of KEDA that affect them.

The daemon's own parser (`scaler.workloads.triggers`) decides which triggers are meant for Tidegate and what is wrong
with their keys. This module adds the position, whatever keeps a trigger from reaching Tidegate, and the effect of
KEDA's counts, times, fallback, pauses and cron triggers. All other fields belong to KEDA and Kubernetes.

Observed on KEDA 2.19.0 and 2.20.2: a fallback marks the trigger active, so it lifts zero to its count; with a count of
zero its error no longer blocks scaling to zero; it never engages while GetMetricSpec fails, that is, while the scaler
is unreachable. Unpausing after the cooldown scales to zero within the second.

Worked example: for a ScaledObject with trigger metadata `{scalerAddress: "tidegate:6000", engine: vlm}` there
is one error, `scaledobject.yaml:9:15: spec.triggers.0.metadata.engine: must be one of ..., got 'vlm'`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from exporter.kubernetes.decode_autoscaling import PAUSED as PAUSED_KEY
from exporter.kubernetes.objects import Ref, ScaledObject, ScaledObjectTrigger
from exporter.model import WorkloadKey
from scaler.config.errors import Finding, Loc, TriggerErrors, TriggerProblem
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
from scaler.config.scalars import did_you_mean, write_duration
from scaler.config.trigger import ANNOTATION, ASIDES, BRAKE, CHECK_IGNORE, Trigger, TriggerWorkload, bounds
from scaler.config.validate_workload import brake_findings
from scaler.config.workload import SCALED_JOB, Replicas
from scaler.config.yaml import DocumentValue
from scaler.policy.overrides import OverrideError, read_brake
from scaler.workloads import triggers
from scaler.workloads.registry import name_in_use
from scaler.workloads.triggers import (
    ExternalTrigger,
    TriggerContext,
    WorkloadResult,
    WorkloadSource,
    make,
    parse_triggers,
    too_many,
)

from .findings import from_trigger_problem

# A rendered chart of a platform is larger than a configuration; YAML is parsed at about 200 kB/s.
LARGEST_BYTES = 4 * 2**20

ANNOTATED = ("Deployment", "StatefulSet", "LeaderWorkerSet", "Rollout")
_SCALED = ("ScaledObject", "ScaledJob")
_KIND_KEY = re.compile(r"^[ \t{-]*[\"']?kind[\"']?\s*:", re.MULTILINE)
_VERSION_KEY = re.compile(r"^[ \t{-]*[\"']?apiVersion[\"']?\s*:", re.MULTILINE)
_ANNOTATIONS = ("metadata", "annotations")
_TEMPLATE = ("spec", "template", "metadata", "annotations")
_BRAKE_INSTEAD = 'tidegate.dev/brake: "freeze until ..." holds it and ends by itself'
_UNREACHABLE = "and it does not engage while Tidegate is unreachable"

# KEDA's own defaults.
_DEFAULT_MINIMUM, _DEFAULT_MAXIMUM = 0, 100
_DEFAULT_COOLDOWN_S, _DEFAULT_POLLING_S = 300, 30
# Two polls. With one, a poll that KEDA up to 2.20.2 wrongly takes for inactive (kedacore/keda#7737) would end the last
# replica of a loaded workload.
_SHORT_COOLDOWN_S = 60


class DefinedWorkload(NamedTuple):
    """A workload that an object defines. gateway: the object's key that names its gateway."""

    workload: TriggerWorkload
    gateway: Loc


class TriggerReport(NamedTuple):
    """Holds the workloads that an object's triggers and annotations define, and the findings about them."""

    findings: list[Finding]
    workloads: list[DefinedWorkload]


def is_manifest(text: str) -> bool:
    """Whether a text is a Kubernetes manifest: a configuration of Tidegate has no apiVersion."""
    return _VERSION_KEY.search(text) is not None and _KIND_KEY.search(text) is not None


def check_triggers(obj: DocumentValue, config: Config | None, now: float | None) -> TriggerReport | None:
    """Checks an object's triggers and annotations; None if it has none for Tidegate.

    config: of the daemon that will read it; None assumes the defaults. now: POSIX seconds; None skips expired brakes.
    """
    kind = obj.read("kind")
    is_scaled = kind in _SCALED and obj.read("apiVersion").startswith("keda.sh/")
    annotations, of_pods = _annotations(obj, _ANNOTATIONS), _annotations(obj, _TEMPLATE)
    brake = annotations.pop(ANNOTATION + BRAKE, None)
    annotations.pop(ANNOTATION + CHECK_IGNORE, None)
    report = _check_scaled(obj, config) if is_scaled else None
    if report is None:
        if not annotations and not of_pods and brake is None:
            return None
        report = TriggerReport([], [])
    findings = report.findings
    if brake is not None:
        findings += _brake(brake, is_scaled or kind in ANNOTATED, now)
    if annotations and kind in ANNOTATED:
        result = _read_annotations(obj, annotations, config)
        findings += _non_strings(annotations, _ANNOTATIONS)
        findings += _annotation_findings(result.problems)
        if result.workload is not None:
            report.workloads.append(DefinedWorkload(result.workload, (*_ANNOTATIONS, f"{ANNOTATION}gateway")))
    elif annotations:
        first = next(iter(annotations))
        if is_scaled and (meant := did_you_mean(first.removeprefix(ANNOTATION).lower(), ASIDES)):
            better = f"did you mean {ANNOTATION}{meant}?"
        elif is_scaled:
            better = f"use the metadata of its trigger; only {ANNOTATION}{BRAKE} is read"
        else:
            better = f"it is read on {', '.join(ANNOTATED)}"
        key = (*_ANNOTATIONS, first)
        findings.append(Finding(key, f"is not read on a {kind}: {better}", rule=ANNOTATION_NOT_READ))
    if of_pods:
        message = f"is not read on pods: annotate the {kind} itself"
        findings.append(Finding((*_TEMPLATE, next(iter(of_pods))), message, rule=ANNOTATION_NOT_READ))
    return report


def _brake(brake: DocumentValue, is_read: bool, now: float | None) -> Iterator[Finding]:
    at = (*_ANNOTATIONS, ANNOTATION + BRAKE)
    if not is_read:
        message = f"is not read here: it is read on ScaledObject, ScaledJob, {', '.join(ANNOTATED)}"
        yield Finding(at, message, rule=ANNOTATION_NOT_READ)
        return
    yield from _non_strings({at[-1]: brake}, _ANNOTATIONS)
    if brake.text is None:
        return
    try:
        parsed = read_brake(brake.text)
    except OverrideError as bad:
        yield Finding(at, f"{bad}. Until then it counts as never_down", brake.text)
        return
    yield from brake_findings(at, parsed, now)


def _read_annotations(
    obj: DocumentValue, annotations: dict[str, DocumentValue], config: Config | None
) -> WorkloadResult:
    texts = {key.removeprefix(ANNOTATION): value.text for key, value in annotations.items() if value.text is not None}
    name, namespace = obj.read("metadata", "name"), obj.read("metadata", "namespace") or "default"
    ref = Ref(namespace, obj.read("kind"), name)
    return make(WorkloadSource(WorkloadKey(namespace, name), ref, "annotations"), texts, _bounds, _assumed(config))


def _annotation_findings(problems: Iterable[TriggerProblem]) -> Iterator[Finding]:
    for problem in problems:
        holder, _, key = problem.key.partition(".")
        # The object is its own target: the name of the target is the object's.
        loc = {"object": ("metadata", key), "spec": ("metadata", "name")}.get(holder, (*_ANNOTATIONS, problem.key))
        yield from_trigger_problem(problem, loc)


def _bounds(trigger: Trigger | None) -> Replicas:
    """Without annotations the HPA's counts apply, and its minReplicas is at least 1."""
    replicas = trigger.replicas if trigger is not None else Replicas()
    return replicas if "min" in replicas.model_fields_set else replicas.model_copy(update={"min": 1})


def _annotations(obj: DocumentValue, path: tuple[str, ...]) -> dict[str, DocumentValue]:
    return {key: value for key, value in obj.below(*path).items() if key.startswith(ANNOTATION)}


def is_ours(trigger: DocumentValue) -> bool:
    """Whether a trigger is meant for Tidegate, by its address or its keys."""
    return triggers.is_ours(_trigger(trigger))


def _assumed(config: Config | None) -> Config:
    """The configuration, or the defaults."""
    return config or Config.model_validate({"kubernetes": {}})


def _non_strings(values: Mapping[str, DocumentValue], at: Loc) -> Iterator[Finding]:
    """Kubernetes rejects metadata and annotations that are not strings."""
    for key, value in values.items():
        if value.text is None:
            yield Finding((*at, key), "must be a string, not a mapping or list")
        elif not value.is_string:
            yield Finding((*at, key), "must be a string: put it in quotes", value.text)


def _check_scaled(obj: DocumentValue, config: Config | None) -> TriggerReport | None:
    """Checks a ScaledObject or ScaledJob; None if it has no trigger for Tidegate."""
    scaled = _scaled_object(obj)
    ours = [trigger for trigger in parse_triggers(scaled, _environment(scaled, config)) if trigger.is_for_us]
    if not ours:
        return None
    findings: list[Finding] = []
    workloads: dict[WorkloadKey, DefinedWorkload] = {}
    for trigger in ours:
        at: Loc = ("spec", "triggers", trigger.position)
        findings += _connection(obj.items("spec", "triggers")[trigger.position], at)
        problems, outcome = trigger.verdict.problems, trigger.verdict.outcome
        if isinstance(outcome, TriggerWorkload):
            problems = (name_in_use(outcome, scaled),) if outcome.key in workloads else problems
            workloads.setdefault(outcome.key, DefinedWorkload(outcome, (*at, "metadata", "gateway")))
        findings += (_with_default(from_trigger_problem(problem, _loc(problem, at)), obj) for problem in problems)
        findings += _polling(trigger, at, scaled)
    if (problem := too_many(scaled)) is not None:
        findings.append(from_trigger_problem(problem, ("spec", "triggers")))
    replicas = _replicas(scaled)
    findings += _fallback(obj, replicas)
    findings += _pauses(obj, replicas)
    findings += _cron_triggers(obj)
    sleepers = [workload for trigger in ours if (workload := _sleeper(trigger, scaled)) is not None]
    if sleepers:
        findings += _cooldown(obj, max(workload.constant_keep_warm for workload in sleepers))
    # Wrong counts are reported for each trigger.
    return TriggerReport(list(dict.fromkeys(findings)), list(workloads.values()))


def _scaled_object(obj: DocumentValue) -> ScaledObject:
    """The daemon's record of the object; missing fields are empty."""
    kind, namespace = obj.read("kind"), obj.read("metadata", "namespace") or "default"
    ref = Ref(namespace, kind, obj.read("metadata", "name"))
    target = obj.read("spec", "scaleTargetRef", "kind") or "Deployment", obj.read("spec", "scaleTargetRef", "name")
    return ScaledObject(
        ref,
        ref if kind == SCALED_JOB else Ref(namespace, *target),
        minimum=_count(obj, "minReplicaCount", _DEFAULT_MINIMUM),
        maximum=_count(obj, "maxReplicaCount", _DEFAULT_MAXIMUM),
        idle=obj.count("spec", "idleReplicaCount"),
        triggers=tuple(_trigger(trigger) for trigger in obj.items("spec", "triggers")),
    )


def _trigger(trigger: DocumentValue) -> ScaledObjectTrigger:
    metadata = {key: value.text for key, value in trigger.below("metadata").items() if value.text is not None}
    return ScaledObjectTrigger(trigger.read("type"), trigger.read("name") or None, metadata)


def _environment(scaled: ScaledObject, config: Config | None) -> TriggerContext:
    """Without a configuration, every workload that a trigger names is assumed to be in it."""
    if config is not None:
        return TriggerContext(config, {workload.key: not config.observes(workload) for workload in config.workloads})
    named = (trigger.metadata.get("workload") for trigger in scaled.triggers)
    return TriggerContext(_assumed(None), {WorkloadKey(scaled.ref.namespace, name): True for name in named if name})


def _replicas(scaled: ScaledObject) -> Replicas | None:
    """The object's bounds; None if they are invalid."""
    try:
        return bounds(scaled.minimum, scaled.maximum, scaled.idle)
    except TriggerErrors:
        return None


def _sleeper(trigger: ExternalTrigger, scaled: ScaledObject) -> TriggerWorkload | None:
    """The workload that the trigger defines, if it goes to zero and can wake. For a ScaledJob, KEDA has neither pushes
    nor a cooldown.
    """
    workload = trigger.verdict.outcome
    if not isinstance(workload, TriggerWorkload) or scaled.ref.kind == SCALED_JOB:
        return None
    return workload if workload.replicas.sleeps and workload.gateway is not None else None


def _polling(trigger: ExternalTrigger, at: Loc, scaled: ScaledObject) -> Iterator[Finding]:
    if _sleeper(trigger, scaled) is not None and scaled.triggers[trigger.position].type == "external":
        polling = f"pollingInterval, {_DEFAULT_POLLING_S} s by default"
        message = f"wakes only when KEDA polls ({polling}): external-push wakes at once"
        yield Finding((*at, "type"), message, rule=WAKES_BY_POLLING)


def _cooldown(obj: DocumentValue, keep_warm_s: float) -> Iterator[Finding]:
    """keep_warm_s: KEDA's cooldown begins after it."""
    written = obj.count("spec", "cooldownPeriod")
    cooldown = _DEFAULT_COOLDOWN_S if written is None else written
    if cooldown <= _SHORT_COOLDOWN_S:
        return
    default = f"is {write_duration(cooldown)} by default and " if written is None else ""
    message = (
        f"{default}begins when keep_warm ({write_duration(keep_warm_s)}) is over: asleep after "
        f"{write_duration(keep_warm_s + cooldown)}; set it to 60"
    )
    got = None if written is None else str(written)
    yield Finding(("spec", "cooldownPeriod"), message, got, COOLDOWN_ADDS_UP)


def _with_default(finding: Finding, obj: DocumentValue) -> Finding:
    if finding.key != ("spec", "minReplicaCount") or obj.at(*finding.key) is not None:
        return finding
    return finding._replace(message=f"{finding.message}; the default is {_DEFAULT_MINIMUM}")


def _connection(trigger: DocumentValue, at: Loc) -> Iterator[Finding]:
    """Findings that keep a trigger from reaching Tidegate."""
    metadata = trigger.below("metadata")
    yield from _non_strings(metadata, (*at, "metadata"))
    if "scalerAddress" not in metadata and "scalerAddressFromEnv" not in metadata:
        yield Finding((*at, "metadata", "scalerAddress"), "must be given: the address of Tidegate")
    holder = trigger.at("metadata")
    for key in sorted(holder.repeated()) if holder is not None else ():
        yield Finding((*at, "metadata", key), "duplicate key: which value applies is undefined")
    if trigger.read("metricType") not in {"", "AverageValue"}:
        bound = "must be AverageValue or absent: the metric is a number of replicas, with target 1"
        yield Finding((*at, "metricType"), bound, trigger.read("metricType"), METRIC_TYPE)


def _loc(problem: TriggerProblem, at: Loc) -> Loc:
    """The key of the document. `spec` and `object` are the object's, `metadata` is the trigger's."""
    holder, _, key = problem.key.partition(".")
    if holder == "object":
        return ("metadata", key)
    return ("spec", key) if holder == "spec" else (*at, holder, key) if key else (*at, holder)


def _count(obj: DocumentValue, key: str, default: int) -> int:
    count = obj.count("spec", key)
    return default if count is None else count


def _fallback(obj: DocumentValue, replicas: Replicas | None) -> Iterator[Finding]:
    """replicas: the bounds; None if unknown."""
    if obj.at("spec", "fallback") is None:
        return
    at, count = ("spec", "fallback"), obj.count("spec", "fallback", "replicas")
    sleeps = replicas is None or replicas.sleeps
    if count == 0 and sleeps:
        message = f"scales to zero when Tidegate has no value, also under load, {_UNREACHABLE}"
    elif sleeps:
        message = f"wakes a workload at zero when Tidegate has no value, {_UNREACHABLE}"
    else:
        message = f"sets the replicas regardless of load when Tidegate has no value, {_UNREACHABLE}"
    yield Finding(at, f"{message}: without it KEDA keeps the replicas", rule=FALLBACK)


def _pauses(obj: DocumentValue, replicas: Replicas | None) -> Iterator[Finding]:
    """KEDA does not call Tidegate while it is paused, and a pause has no end."""
    sleeps = replicas is None or replicas.sleeps
    for key, value in obj.below(*_ANNOTATIONS).items():
        if value.text == "false":
            continue
        message = {
            PAUSED_KEY: "removes the HPA; unpaused after its cooldownPeriod, it scales to zero at once"
            if sleeps
            else "removes the HPA, and nothing scales until it is unpaused",
            f"{PAUSED_KEY}-replicas": "sets that many replicas at once, without Tidegate"
            + ("; unpaused after its cooldownPeriod, it scales to zero at once" if sleeps else ""),
            f"{PAUSED_KEY}-scale-in": "has no end, and prevents scaling to zero",
            f"{PAUSED_KEY}-scale-out": "prevents waking, even with requests waiting",
        }.get(key)
        if message is not None:
            yield Finding((*_ANNOTATIONS, key), f"{message}: {_BRAKE_INSTEAD}", rule=PAUSED)


def _cron_triggers(obj: DocumentValue) -> Iterator[Finding]:
    """Cron triggers beside Tidegate's."""
    for index, trigger in enumerate(obj.items("spec", "triggers")):
        if trigger.read("type") == "cron":
            message = (
                "holds replicas that Tidegate does not know, cold at the start: use the key schedules of Tidegate's "
                "trigger, which also pre-warms"
            )
            yield Finding(("spec", "triggers", index, "type"), message, rule=CRON_BESIDE)
