"""What is to be said of the triggers of one ScaledObject or ScaledJob, as it stands in a manifest.

It knows which external triggers are meant for Tidegate and what KEDA makes of the counts and times around them. Another
scaler's triggers are nobody's business here: a trigger is ours if its address says so or its words do.

Worked example: a ScaledObject without a minReplicaCount and with the trigger `{scalerAddress: "tidegate:6000", engine:
vllm}` has one warning: its minimum is 0, KEDA's default, and without a gateway nothing could wake it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pydantic import ValidationError

from exporter.model import WorkloadKey

from ..rules.controllers import METRIC_TYPE
from ..rules.zero import COOLDOWN_ADDS_UP, WAKES_BY_POLLING
from .bad_words import BadWord, BadWords
from .documents import Value
from .endpoint import Endpoint
from .jobs import SCALED_JOB, said_of_jobs
from .keda_traps import cron_remarks, fallback_remarks, pause_remarks
from .model import Config
from .problem import Loc
from .remark import Remark, of_word
from .scalars import write_duration
from .tenant import Trigger, bounds
from .trigger import FROM_ENV, KEDAS, PREFIXES, WORDS, check_workload, read
from .workload import Replicas, Workload

_EXTERNAL = ("external", "external-push")
# Words that other external scalers may well have too: alone they prove nothing.
_COMMON = frozenset({"model", "port", "path", "scheme", "workload", "mode"})
# KEDA's own defaults.
_MINIMUM, _MAXIMUM = 0, 100
_COOLDOWN_S, _POLLING_S = 300, 30
_SHORT_COOLDOWN_S = 60  # no more than a poll or two: the shipped examples have 30


class _Scaled(NamedTuple):
    """What a ScaledObject says around its triggers. replicas: None where it says what cannot be."""

    key: WorkloadKey
    target: str
    replicas: Replicas | None
    config: Config | None
    is_job: bool


def is_ours(trigger: Value) -> bool:
    """It is meant for Tidegate: its address says so, or its words do."""
    if trigger.read("type") not in _EXTERNAL:
        return False
    if "tidegate" in trigger.read("metadata", "scalerAddress").partition(":")[0]:
        return True
    keys = set(trigger.below("metadata"))
    words = keys & set(WORDS)
    return bool(words - _COMMON) or (bool(words) and all(key.removesuffix(FROM_ENV) in KEDAS for key in keys - words))


def shared_page(config: Config | None, trigger: Trigger, namespace: str) -> Endpoint | None:
    """The page of the shared gateway that a trigger of that namespace names; None if it names a Service."""
    gateways = config.gateways if config is not None else ()
    return next((one.page for one in gateways if one.name == trigger.gateway and one.is_for(namespace)), None)


def made(trigger: Trigger, key: WorkloadKey, target: str, replicas: Replicas, shared: Endpoint | None) -> Workload:
    """The workload of these words. Raises BadWords: of the object's own name and namespace, as `object.name`."""
    try:
        return trigger.workload(key, target, replicas, shared)
    except ValidationError as error:
        first = error.errors()[0]
        word = ".".join(str(part) for part in first["loc"])
        raise BadWords((BadWord(f"object.{word}", first["msg"], str(first["input"])),)) from None


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


def remarks_on_scaled(thing: Value, config: Config | None) -> Iterator[Remark]:
    """thing: a ScaledObject or ScaledJob. config: what it will meet; None: not known."""
    is_job = thing.read("kind") == SCALED_JOB
    kind = SCALED_JOB if is_job else thing.read("spec", "scaleTargetRef", "kind") or "Deployment"
    name = thing.read("metadata", "name")
    replicas: Replicas | None = None
    try:
        replicas = bounds(
            _count(thing, "minReplicaCount", _MINIMUM),
            _count(thing, "maxReplicaCount", _MAXIMUM),
            thing.count("spec", "idleReplicaCount"),
        )
    except BadWords as bad:
        yield from (of_word(word, _loc(word, ())) for word in bad.problems)
    scaled = _Scaled(
        WorkloadKey(thing.read("metadata", "namespace") or "default", name),
        f"{kind}/{name if is_job else thing.read('spec', 'scaleTargetRef', 'name')}",
        replicas,
        config,
        is_job,
    )
    kept_warm: list[float] = []
    for index, trigger in enumerate(thing.items("spec", "triggers")):
        if is_ours(trigger):
            remarks = _of_trigger(trigger, ("spec", "triggers", index), scaled, kept_warm)
            yield from (_with_default(remark, thing) for remark in remarks)
    yield from fallback_remarks(thing, replicas)
    yield from pause_remarks(thing, replicas)
    yield from cron_remarks(thing)
    if kept_warm:
        yield from _cooldown(thing, max(kept_warm))


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


def _of_trigger(trigger: Value, at: Loc, scaled: _Scaled, kept_warm: list[float]) -> Iterator[Remark]:
    """kept_warm: gets the keep_warm of a workload that may go to zero. KEDA hears no push for a ScaledJob, and its Jobs
    know no cooldown.
    """
    yield from _plumbing(trigger, at)
    metadata = trigger.below("metadata")
    words = {key: value.text for key, value in metadata.items() if value.text is not None}
    if scaled.replicas is None or _is_configured(words, scaled):
        return
    try:
        ours = read(words, place="metadata")
        if ours.configured is not None:
            yield from _of_configured(ours.configured, at, scaled)
            return
        config = assumed(scaled.config)
        shared = shared_page(config, ours, scaled.key.namespace)
        workload = made(ours, scaled.key, scaled.target, scaled.replicas, shared)
        said = check_workload(ours, workload, config, place="metadata")
    except BadWords as bad:
        yield from (of_word(word, _loc(word, at)) for word in bad.problems)
        return
    if scaled.is_job:
        said = tuple(said_of_jobs(said, workload, PREFIXES["metadata"]))
    yield from (of_word(word, _loc(word, at)) for word in said)
    if scaled.is_job or not scaled.replicas.sleeps or workload.gateway is None:
        return
    kept_warm.append(workload.constant_keep_warm)
    if trigger.read("type") == "external":
        message = (
            f"wakes only when KEDA polls (pollingInterval, {_POLLING_S} s by default): external-push wakes at once"
        )
        yield Remark((*at, "type"), message, "warning", rule=WAKES_BY_POLLING)


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


def _is_configured(words: dict[str, str], scaled: _Scaled) -> bool:
    """Without a word, a trigger asks about the configuration's workload of the ScaledObject's own name."""
    if set(words) & set(WORDS) or scaled.config is None:
        return False
    return any(workload.key == scaled.key for workload in scaled.config.workloads)


def _of_configured(name: str, at: Loc, scaled: _Scaled) -> Iterator[Remark]:
    if scaled.config is None or any(
        (one.namespace, one.name) == (scaled.key.namespace, name) for one in scaled.config.workloads
    ):
        return
    bound = f"must be a workload of the configuration: it has none of that name in {scaled.key.namespace}"
    yield Remark((*at, "metadata", "workload"), bound, got=name)


def _loc(word: BadWord, at: Loc) -> Loc:
    """Where a word stands; `spec` and `object` are the object's, `metadata` the trigger's."""
    holder, _, key = word.key.partition(".")
    if holder == "object":
        return ("metadata", key)
    return ("spec", key) if holder == "spec" else (*at, holder, key) if key else (*at, holder)


def _count(thing: Value, key: str, usual: int) -> int:
    count = thing.count("spec", key)
    return usual if count is None else count
