"""What is to be said of the triggers of one ScaledObject or ScaledJob, as it stands in a manifest.

Which triggers are meant for Tidegate, and what is wrong with their words, the daemon's own reader says
(`census.triggers`). Here are the lines at which that stands, what keeps a trigger from reaching Tidegate, and what KEDA
makes of the counts and times around it.

Worked example: a ScaledObject without a minReplicaCount and with the trigger `{scalerAddress: "tidegate:6000", engine:
vllm}` has one warning: its minimum is 0, KEDA's default, and without a gateway nothing could wake it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from exporter.cluster.objects import Ref, ScaledObject, Trigger
from exporter.model import WorkloadKey

from ..census import triggers
from ..census.scaled import name_in_use
from ..census.triggers import Around, Heard, heard, too_many
from ..config.bad_words import BadWord, BadWords
from ..config.documents import Value
from ..config.jobs import SCALED_JOB
from ..config.keda_traps import cron_remarks, fallback_remarks, pause_remarks
from ..config.model import Config
from ..config.problem import Loc
from ..config.remark import Remark, of_word
from ..config.scalars import write_duration
from ..config.tenant import TriggerWorkload, bounds
from ..config.workload import Replicas
from ..rules import COOLDOWN_ADDS_UP, METRIC_TYPE, WAKES_BY_POLLING

# KEDA's own defaults.
_MINIMUM, _MAXIMUM = 0, 100
_COOLDOWN_S, _POLLING_S = 300, 30
_SHORT_COOLDOWN_S = 60  # no more than a poll or two: the shipped examples have 30


def is_ours(trigger: Value) -> bool:
    """It is meant for Tidegate: its address says so, or its words do."""
    return triggers.is_ours(_trigger(trigger))


def assumed(config: Config | None) -> Config:
    """The configuration that a manifest will meet; with every default where it is not known."""
    return config or Config.model_validate({"kubernetes": {}})


def remarks_on_strings(values: Mapping[str, Value], at: Loc) -> Iterator[Remark]:
    """Kubernetes refuses metadata and annotations that are no strings."""
    for key, value in values.items():
        if value.text is None:
            yield Remark((*at, key), "must be a string, and no mapping or list")
        elif not value.is_string:
            yield Remark((*at, key), "must be a string: put it in quotes", got=value.text)


def remarks_on_scaled(thing: Value, config: Config | None) -> list[Remark] | None:
    """None: it does not ask Tidegate. thing: a ScaledObject or ScaledJob. config: that it will meet; None: unknown."""
    scaled = _record(thing)
    said = [one for one in heard(scaled, _around(scaled, config)) if one.is_for_us]
    if not said:
        return None
    remarks: list[Remark] = []
    workloads: set[WorkloadKey] = set()
    for trigger in said:
        at: Loc = ("spec", "triggers", trigger.place)
        remarks += _plumbing(thing.items("spec", "triggers")[trigger.place], at)
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


def _record(thing: Value) -> ScaledObject:
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


def _trigger(trigger: Value) -> Trigger:
    metadata = {key: value.text for key, value in trigger.below("metadata").items() if value.text is not None}
    return Trigger(trigger.read("type"), trigger.read("name") or None, metadata)


def _around(scaled: ScaledObject, config: Config | None) -> Around:
    """Of a configuration that is not known, whatever workload a trigger names is taken to be there."""
    if config is not None:
        return Around(config, {workload.key: not config.observes(workload) for workload in config.workloads})
    named = (trigger.metadata.get("workload") for trigger in scaled.triggers)
    return Around(assumed(None), {WorkloadKey(scaled.ref.namespace, name): True for name in named if name})


def _replicas(scaled: ScaledObject) -> Replicas | None:
    """None where the object says what cannot be."""
    try:
        return bounds(scaled.minimum, scaled.maximum, scaled.idle)
    except BadWords:
        return None


def _sleeper(trigger: Heard, scaled: ScaledObject) -> TriggerWorkload | None:
    """The workload that it makes, if that goes to zero and comes back. KEDA hears no push for a ScaledJob, and its Jobs
    know no cooldown.
    """
    workload = trigger.verdict.outcome
    if not isinstance(workload, TriggerWorkload) or scaled.ref.kind == SCALED_JOB:
        return None
    return workload if workload.replicas.sleeps and workload.gateway is not None else None


def _polling(trigger: Heard, at: Loc, scaled: ScaledObject) -> Iterator[Remark]:
    if _sleeper(trigger, scaled) is not None and scaled.triggers[trigger.place].type == "external":
        message = (
            f"wakes only when KEDA polls (pollingInterval, {_POLLING_S} s by default): external-push wakes at once"
        )
        yield Remark((*at, "type"), message, "warning", rule=WAKES_BY_POLLING)


def _cooldown(thing: Value, kept_warm: float) -> Iterator[Remark]:
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


def _with_default(remark: Remark, thing: Value) -> Remark:
    if remark.loc != ("spec", "minReplicaCount") or thing.at(*remark.loc) is not None:
        return remark
    return remark._replace(message=f"{remark.message}; left out, it is {_MINIMUM}")


def _plumbing(trigger: Value, at: Loc) -> Iterator[Remark]:
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


def _count(thing: Value, key: str, usual: int) -> int:
    count = thing.count("spec", key)
    return usual if count is None else count
