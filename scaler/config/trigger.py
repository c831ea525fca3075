"""Reads the keys of a trigger's metadata and of `tidegate.dev/` annotations, and builds the workload that they define.

The keys are those of a workload in the configuration, with dots where those are nested. Bounds, defaults and effects
are the configuration's. Values are read like unquoted values of a configuration: "16" is a number and "null" is null; a
model called "7" stays text. The pods are those of the scale target; the gateway is a Service of the same namespace or a
shared gateway of the configuration. No key is an address to fetch.

Worked example: `read({"scalerAddress": "tidegate:6000", "engine": "vllm", "objectives.work": "16"}, origin="metadata")`
is `Trigger(engine="vllm", objectives=Objectives(work=16))`; with `"objektives.work"` it raises TriggerErrors with
`metadata.objektives.work: unknown key; did you mean objectives.work?`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args

from pydantic import Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from exporter.model import WorkloadKey

from .endpoint import Endpoint, Path, Port, Scheme, Section, Text
from .errors import Finding, Loc, TriggerErrors, TriggerProblem, is_plain
from .model import Config
from .overrides import SCHEDULES, scheduled
from .pydantic_errors import salvage, sections_in, sentence
from .rules import QUEUE_OF_ALL
from .scalars import GATEWAY_KIND, GATEWAY_NAME, did_you_mean, kubernetes_name, read_target
from .validate_workload import workload_findings
from .workload import (
    MOST_REPLICAS,
    Band,
    Engine,
    GpuShare,
    Group,
    KeepWarm,
    Mode,
    Objectives,
    OnBlind,
    OnIncomplete,
    Order,
    Price,
    ProbePeriod,
    Quiet,
    Replicas,
    Role,
    RoleRatio,
    Seconds,
    SleepMode,
    Slo,
    Smoothing,
    Tolerance,
    Weight,
    Workload,
)
from .yaml import resolve

KeyOrigin: TypeAlias = Literal["metadata", "annotations"]

# KEDA's own keys: it sends all metadata of a trigger. KEDA 2.17 removed tlsCertFile; old manifests still have it.
KEDA_KEYS = ("scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsClientCert", "tlsClientKey", "tlsCertFile")
FROM_ENV = "FromEnv"
ANNOTATION = "tidegate.dev/"
BRAKE = "brake"
CHECK_IGNORE = "check-ignore"  # silences rules of `tidegate check`; the daemon ignores it
# Annotations of any object that define no workload. A brake is read alone, so that no other mistake disables it.
ASIDES = frozenset({BRAKE, CHECK_IGNORE})
PREFIXES: Mapping[KeyOrigin, str] = {"metadata": "metadata.", "annotations": ANNOTATION}

_ONLY: Mapping[str, KeyOrigin] = {"workload": "metadata", "replicas.min": "annotations", "replicas.max": "annotations"}
_ALTERNATIVES = {  # what to use at the other origin
    "workload": "it is for the metadata of a trigger",
    "replicas.min": "use the ScaledObject's minReplicaCount",
    "replicas.max": "use the ScaledObject's maxReplicaCount",
}
_EXCLUDED = {"replicas.idle"}  # an HPA has no idle count
_SOURCES = ("engine", "gateway", "objectives.gpu_engine")
_GOES_WITH = {"port": "engine", "path": "engine", "scheme": "engine"} | dict.fromkeys(
    ("gateway_kind", "gateway_port", "gateway_path", "gateway_scheme"), "gateway"
)
_MOST_HINTS = 16  # unknown keys with a hint: an object may have thousands
_SPEC = {("replicas", "min"): "spec.minReplicaCount", ("replicas", "idle"): "spec.idleReplicaCount"}


class TriggerWorkload(Workload):
    """A workload that a trigger or annotations define."""

    trigger: str = ""
    """Name of the trigger if its ScaledObject has several; "" for the only or first one."""

    @property
    def key(self) -> WorkloadKey:
        return WorkloadKey(self.namespace, self.name, self.trigger)


def _as_in_workload(key: str) -> Any:
    """The default and the docstring of a workload's key."""
    field = Workload.model_fields[key]
    return Field(default=field.default, description=field.description)


class Trigger(Section):
    """Keys of a trigger or of annotations."""

    engine: Engine | None = _as_in_workload("engine")
    model: Text | None = _as_in_workload("model")
    port: Port | None = None
    """Port of the pods' metrics. null: the engine's default."""
    path: Path | None = None
    """Path of the pods' metrics. null: the engine's default."""
    scheme: Scheme | None = None
    """Scheme of the pods' metrics. null: http."""
    gateway: Annotated[str, GATEWAY_NAME] | None = None
    """Wake source: the name of a Service in the same namespace, or of one of `gateways` in Tidegate's configuration."""
    gateway_kind: Annotated[str, GATEWAY_KIND] | None = None
    """Kind of the gateway. null: epp, an endpoint picker."""
    gateway_port: Port | None = None
    """Port of the gateway's metrics. null: the kind's default."""
    gateway_path: Path | None = None
    """Path of the gateway's metrics. null: the kind's default."""
    gateway_scheme: Scheme | None = None
    """Scheme of the gateway's metrics. null: http."""
    slo: Slo | None = _as_in_workload("slo")
    objectives: Objectives = _as_in_workload("objectives")
    smoothing: Smoothing = _as_in_workload("smoothing")
    keep_warm: KeepWarm = _as_in_workload("keep_warm")
    keep_warm_min: Seconds = _as_in_workload("keep_warm_min")
    keep_warm_max: Seconds = _as_in_workload("keep_warm_max")
    on_blind: OnBlind = _as_in_workload("on_blind")
    on_incomplete: OnIncomplete = _as_in_workload("on_incomplete")
    lease_max: Seconds = _as_in_workload("lease_max")
    scale_down_band: Band = _as_in_workload("scale_down_band")
    gpu_quiet: Quiet = _as_in_workload("gpu_quiet")
    schedules: Annotated[str, SCHEDULES] | None = None
    """Times with a floor or a ceiling (docs/how-to/overrides.md), such as `0 8 * * 1-5 for 10h in Europe/Berlin floor 2
    prewarm auto`."""
    probe_period: ProbePeriod = _as_in_workload("probe_period")
    hpa_tolerance: Tolerance = _as_in_workload("hpa_tolerance")
    gpu_hour: Price | None = _as_in_workload("gpu_hour")
    group: Group | None = _as_in_workload("group")
    role: Role | None = _as_in_workload("role")
    weight: Weight = _as_in_workload("weight")
    order: Order = _as_in_workload("order")
    ratio: RoleRatio | None = _as_in_workload("ratio")
    share: GpuShare = _as_in_workload("share")
    sleep_mode: SleepMode | None = _as_in_workload("sleep_mode")
    configured: Annotated[str, kubernetes_name(253, "workload")] | None = Field(default=None, alias="workload")
    """Workload of this name and namespace in Tidegate's configuration, which defines it. No other key is allowed."""
    mode: Mode | None = _as_in_workload("mode")
    replicas: Replicas = _as_in_workload("replicas")

    def workload(self, key: WorkloadKey, target: str, replicas: Replicas, shared: Endpoint | None) -> TriggerWorkload:
        """The workload that these keys define.

        target: such as "Deployment/chat". shared: the shared gateway that `gateway` names; None for a Service. Raises
        TriggerErrors for a target without pods that can be found.

        Worked example: `Trigger(engine="vllm", gateway="chat-epp")` for the target "Deployment/chat" has
        `pods.target == "Deployment/chat"` and `gateway.service == "chat-epp"`.
        """
        return TriggerWorkload(
            namespace=key.namespace,
            name=key.name,
            trigger=key.trigger,
            pods=self._pods(target) if self.engine is not None else None,
            gateway=self._gateway(shared) if self.gateway is not None else None,
            replicas=replicas,
            schedules=scheduled(self.schedules),
            # Only what is given, so that the rest counts as default.
            **{key: getattr(self, key) for key in self.model_fields_set & _COPIED},
        )

    def _pods(self, target: str) -> Endpoint:
        try:
            found = read_target(target)
        except PydanticCustomError as error:
            raise TriggerErrors((TriggerProblem("spec.scaleTargetRef", error.message(), target),)) from None
        return Endpoint(target=found, port=self.port, path=self.path, scheme=self.scheme)

    def _gateway(self, shared: Endpoint | None) -> Endpoint:
        return shared or Endpoint(
            service=self.gateway,
            kind=self.gateway_kind,
            port=self.gateway_port,
            path=self.gateway_path,
            scheme=self.gateway_scheme,
        )


_COPIED = (Trigger.model_fields.keys() & Workload.model_fields.keys()) - {"gateway", "replicas", "schedules"}


def bounds(minimum: int, maximum: int, idle: int | None) -> Replicas:
    """The bounds of a ScaledObject's counts; raises TriggerErrors for counts outside of a workload's limits."""
    limits = (
        ("spec.minReplicaCount", minimum, 0, MOST_REPLICAS),
        ("spec.maxReplicaCount", maximum, 1, MOST_REPLICAS),
        ("spec.idleReplicaCount", 0 if idle is None else idle, 0, 0),
    )
    bad = [
        TriggerProblem(key, f"must be from {lowest} to {highest}" if highest else "must be 0", str(count))
        for key, count, lowest, highest in limits
        if not lowest <= count <= highest
    ]
    if bad:
        raise TriggerErrors(tuple(bad))
    return Replicas(min=minimum, max=maximum, idle=None if idle is None else 0)


class TriggerKey(NamedTuple):
    """One key of a tenant. loc: the key in a `Trigger`. is_text: its value is never a number."""

    name: str
    loc: tuple[str, ...]
    origins: tuple[KeyOrigin, ...]
    field: FieldInfo
    is_text: bool


def _keys_of(section: type[Section], at: tuple[str, ...] = ()) -> Iterator[TriggerKey]:
    for key, field in section.model_fields.items():
        loc = (*at, field.alias or key)
        inner = next(sections_in(field.annotation), None)
        name = ".".join(loc)
        if inner is not None:
            yield from _keys_of(inner, loc)
        elif name not in _EXCLUDED:
            origins: tuple[KeyOrigin, ...] = (_ONLY[name],) if name in _ONLY else get_args(KeyOrigin)
            yield TriggerKey(name, loc, origins, field, _is_text(field.annotation))


def _is_text(annotation: Any) -> bool:
    if float in get_args(annotation):  # "auto", or a number
        return False
    return annotation is str or isinstance(annotation, str) or any(_is_text(each) for each in get_args(annotation))


TRIGGER_KEYS: Mapping[str, TriggerKey] = {key.name: key for key in _keys_of(Trigger)}


def read(texts: Mapping[str, str], *, origin: KeyOrigin) -> Trigger:
    """Reads a trigger's `metadata`, or `annotations` (without their `tidegate.dev/`). Raises TriggerErrors."""
    given = {key: text for key, text in texts.items() if origin == "annotations" or not _is_kedas(key)}
    valid = {key: TRIGGER_KEYS[key] for key in given if key in TRIGGER_KEYS and origin in TRIGGER_KEYS[key].origins}
    problems = list(_unknown_keys([key for key in given if key not in valid], given, origin))
    document: dict[str, Any] = {}
    for name, key in valid.items():
        *path, last = key.loc
        holder = document
        for part in path:
            holder = holder.setdefault(part, {})
        holder[last] = _value(given[name], key)
    trigger, errors, _ = salvage(document, Trigger)
    for error in errors:
        name = ".".join(str(part) for part in error["loc"])
        problems.append(TriggerProblem(PREFIXES[origin] + name, sentence(error), given.get(name)))
    problems += _combinations(given, origin)
    if problems or trigger is None:
        order = {PREFIXES[origin] + name: index for index, name in enumerate(given)}
        raise TriggerErrors(tuple(sorted(problems, key=lambda problem: order.get(problem.key, -1))))
    return trigger


def check_workload(
    trigger: Trigger, workload: Workload, config: Config, *, origin: KeyOrigin
) -> tuple[TriggerProblem, ...]:
    """Errors and warnings about the workload that a trigger defines; `read` has checked each key alone."""
    has_shared_gateway = workload.gateway is not None and workload.gateway.service != trigger.gateway
    problems = [
        _problem_of(finding, origin)
        for finding in workload_findings((), workload, config)
        if not (has_shared_gateway and finding.key[:1] == ("gateway",))  # checked with the configuration
    ]
    if not has_shared_gateway:
        return tuple(problems)
    prefix = PREFIXES[origin]
    bound = f"goes with a Service: {trigger.gateway} is a shared gateway, which Tidegate's configuration describes"
    problems += [
        TriggerProblem(prefix + key, bound, str(value))
        for key, source in _GOES_WITH.items()
        if source == "gateway" and (value := getattr(trigger, key)) is not None
    ]
    if trigger.model is None:
        bound = "is not given: the queues of all workloads of the gateway count as this workload's"
        problems.append(TriggerProblem(f"{prefix}model", bound, severity="warning", rule=QUEUE_OF_ALL))
    return tuple(problems)


def _is_kedas(key: str) -> bool:
    return key.removesuffix(FROM_ENV) in KEDA_KEYS


def _value(text: str, key: TriggerKey) -> Any:
    value = resolve(text) if text else text  # "" is not null
    return text if key.is_text and value is not None else value


def _unknown_keys(keys: list[str], given: Mapping[str, str], origin: KeyOrigin) -> Iterator[TriggerProblem]:
    choices = [name for name, key in TRIGGER_KEYS.items() if origin in key.origins]
    choices += [BRAKE] if origin == "annotations" else []
    for key in keys[:_MOST_HINTS]:
        written = PREFIXES[origin] + key
        if key in TRIGGER_KEYS:
            yield TriggerProblem(written, f"is not allowed here: {_ALTERNATIVES[key]}", given[key])
        elif origin == "metadata" and key.removesuffix(FROM_ENV) in TRIGGER_KEYS:
            yield TriggerProblem(written, f"is not resolved: write {key.removesuffix(FROM_ENV)} and its value out")
        else:
            meant = did_you_mean(key.lower().replace("-", "_"), choices) if is_plain(key) else None
            hint = f"did you mean {meant}?" if meant else f"known here: {', '.join(choices)}"
            yield TriggerProblem(written, f"unknown key; {hint}")
    if len(keys) > _MOST_HINTS:
        yield TriggerProblem(PREFIXES[origin].rstrip("./"), f"has {len(keys) - _MOST_HINTS} further unknown keys")


def _combinations(given: Mapping[str, str], origin: KeyOrigin) -> Iterator[TriggerProblem]:
    """Keys that need or exclude each other."""
    prefix = PREFIXES[origin]
    if origin == "metadata" and "workload" in given:
        for key in given:
            if key in TRIGGER_KEYS and key != "workload":
                yield TriggerProblem(
                    prefix + key, "is not allowed beside workload, which Tidegate's configuration defines"
                )
        return
    # A misspelt source is one problem: it is not missing too.
    intended = {did_you_mean(key.lower(), TRIGGER_KEYS) for key in list(given)[:_MOST_HINTS] if key not in TRIGGER_KEYS}
    present = {source for source in _SOURCES if source in given} | intended
    for key, source in _GOES_WITH.items():
        if key in given and source not in present:
            yield TriggerProblem(prefix + key, f"goes with {source}, which is not given")
    if not present & set(_SOURCES):
        bound = "must be given, or gateway, or objectives.gpu_engine: else nothing shows how busy it is"
        yield TriggerProblem(f"{prefix}engine", bound)


def _problem_of(finding: Finding, origin: KeyOrigin) -> TriggerProblem:
    return TriggerProblem(_key_of(finding.key, origin), finding.message, finding.got, finding.severity, finding.rule)


def _key_of(loc: Loc, origin: KeyOrigin) -> str:
    """The tenant's key for a key of a workload."""
    if origin == "metadata" and loc in _SPEC:
        return _SPEC[loc]
    match loc:
        case ("pods", "target"):
            return "spec.scaleTargetRef"
        case ("pods", part):
            key = str(part)
        case ("schedules", *_):
            key = "schedules"
        case ("gateway", part) if part != "service":
            key = f"gateway_{part}"
        case ("gateway", *_):
            key = "gateway"
        case _:
            key = ".".join(str(part) for part in loc)
    return PREFIXES[origin] + key
