"""The words of a trigger's metadata and of `tidegate.dev/` annotations, and the workload that they make.

They are those of a workload in the configuration, dotted where they are nested there. What a word may be, its default
and what it does are the configuration's own. Here is only which words a tenant has, and the workload that they make:
its pods are those of what is scaled, its gateway a Service of its own namespace or one that the configuration shares.
No word is an address to fetch.

Worked example: `Trigger(engine="vllm", gateway="chat-epp").workload(WorkloadKey("ai", "chat"), "Deployment/chat",
Replicas(max=100), None)` has `pods.target == "Deployment/chat"` and `gateway.service == "chat-epp"`.

Words as Kubernetes carries them, each a string -> a `Trigger`, or everything that is wrong with them.

It knows which words stand where and refuses to know what becomes of them. Values are read as the configuration reads
unquoted ones, so "16" is a number and "null" is nothing; a model called "7" stays a name.

Worked example: `read({"scalerAddress": "tidegate:6000", "engine": "vllm", "objectives.work": "16"}, place="metadata")`
is `Trigger(engine="vllm", objectives=Objectives(work=16))`; with `"objektives.work"` it raises BadWords with
`metadata.objektives.work: unknown key; did you mean objectives.work?`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from exporter.model import WorkloadKey

from .endpoint import Endpoint, Path, Port, Scheme, Section, Text
from .errors import BadWord, BadWords, Finding, Loc, is_plain
from .model import Config
from .overrides import SCHEDULES, scheduled
from .pydantic_errors import salvage, sections_in, sentence
from .rules import EVERYBODYS_QUEUE
from .scalars import GATEWAY_KIND, GATEWAY_NAME, did_you_mean, kubernetes_name, read_target
from .validate_workload import workload_findings
from .workload import (
    MOST_REPLICAS,
    Band,
    Engine,
    Group,
    KeepWarm,
    Mode,
    Objectives,
    OnBlind,
    OnIncomplete,
    ProbePeriod,
    Quiet,
    Replicas,
    Role,
    RoleRatio,
    Seconds,
    Smoothing,
    Tolerance,
    Weight,
    Workload,
)
from .yaml import resolve


class TriggerWorkload(Workload):
    """A workload that a trigger or annotations made."""

    trigger: str = ""
    """Which trigger, where its ScaledObject has several of ours; "" for the only or first one."""

    @property
    def key(self) -> WorkloadKey:
        return WorkloadKey(self.namespace, self.name, self.trigger)


def _as_in(section: type[BaseModel], key: str) -> Any:
    """The default and the docstring of a field of the configuration."""
    field = section.model_fields[key]
    return Field(default=field.default, description=field.description)


# Handed on where they are written: what is not, stays known to be a default.
_AS_THERE = frozenset({
    "keep_warm", "keep_warm_min", "keep_warm_max", "on_blind", "on_incomplete", "lease_max", "objectives", "smoothing",
    "scale_down_band", "gpu_quiet", "probe_period", "hpa_tolerance", "group", "role", "weight", "ratio", "mode",
})  # fmt: skip


class Trigger(Section):
    """Keys of a trigger or of annotations."""

    engine: Engine | None = _as_in(Workload, "engine")
    model: Text | None = _as_in(Workload, "model")
    port: Port | None = None
    """Port of the pods' metrics. null: the engine's default."""
    path: Path | None = None
    """Path of the pods' metrics. null: the engine's default."""
    scheme: Scheme | None = None
    """Scheme of the pods' metrics. null: http."""
    gateway: Annotated[str, GATEWAY_NAME] | None = None
    """Wake source: the name of a Service in the same namespace, or of one of `gateways` in Tidegate's configuration.
    Without it one replica is kept."""
    gateway_kind: Annotated[str, GATEWAY_KIND] | None = None
    """Kind of the gateway. null: epp, an endpoint picker of the Gateway API inference extension."""
    gateway_port: Port | None = None
    """Port of the gateway's metrics. null: the kind's default."""
    gateway_path: Path | None = None
    """Path of the gateway's metrics. null: the kind's default."""
    gateway_scheme: Scheme | None = None
    """Scheme of the gateway's metrics. null: http."""
    objectives: Objectives = _as_in(Workload, "objectives")
    smoothing: Smoothing = _as_in(Workload, "smoothing")
    keep_warm: KeepWarm = _as_in(Workload, "keep_warm")
    keep_warm_min: Seconds = _as_in(Workload, "keep_warm_min")
    keep_warm_max: Seconds = _as_in(Workload, "keep_warm_max")
    on_blind: OnBlind = _as_in(Workload, "on_blind")
    on_incomplete: OnIncomplete = _as_in(Workload, "on_incomplete")
    lease_max: Seconds = _as_in(Workload, "lease_max")
    scale_down_band: Band = _as_in(Workload, "scale_down_band")
    gpu_quiet: Quiet = _as_in(Workload, "gpu_quiet")
    schedules: Annotated[str, SCHEDULES] | None = None
    """Times with a floor or a ceiling, such as `0 8 * * 1-5 for 10h in Europe/Berlin floor 2 prewarm auto`. `until` and
    five cron fields can replace `for` and a duration; `;` separates several."""
    probe_period: ProbePeriod = _as_in(Workload, "probe_period")
    hpa_tolerance: Tolerance = _as_in(Workload, "hpa_tolerance")
    group: Group | None = _as_in(Workload, "group")
    role: Role | None = _as_in(Workload, "role")
    weight: Weight = _as_in(Workload, "weight")
    ratio: RoleRatio | None = _as_in(Workload, "ratio")
    configured: Annotated[str, kubernetes_name(253, "workload")] | None = Field(default=None, alias="workload")
    """Workload of this name and namespace in Tidegate's configuration, which defines it. No other key is allowed."""
    mode: Mode | None = _as_in(Workload, "mode")
    replicas: Replicas = _as_in(Workload, "replicas")

    def workload(self, key: WorkloadKey, target: str, replicas: Replicas, shared: Endpoint | None) -> TriggerWorkload:
        """The workload that these words make.

        target: what is scaled, as "Deployment/chat". shared: the page of the shared gateway that `gateway` names;
        None if it names a Service. Raises BadWords if the pods of such a target cannot be found.
        """
        return TriggerWorkload(
            namespace=key.namespace,
            name=key.name,
            trigger=key.trigger,
            engine=self.engine,
            model=self.model,
            pods=self._pods(target) if self.engine is not None else None,
            gateway=self._gateway(shared) if self.gateway is not None else None,
            replicas=replicas,
            schedules=scheduled(self.schedules),
            **{key: getattr(self, key) for key in self.model_fields_set & _AS_THERE},
        )

    def _pods(self, target: str) -> Endpoint:
        try:
            found = read_target(target)
        except PydanticCustomError as error:
            raise BadWords((BadWord("spec.scaleTargetRef", error.message(), target),)) from None
        return Endpoint(target=found, port=self.port, path=self.path, scheme=self.scheme)

    def _gateway(self, shared: Endpoint | None) -> Endpoint:
        return shared or Endpoint(
            service=self.gateway,
            kind=self.gateway_kind,
            port=self.gateway_port,
            path=self.gateway_path,
            scheme=self.gateway_scheme,
        )


def bounds(minimum: int, maximum: int, idle: int | None) -> Replicas:
    """A ScaledObject's counts as bounds; raises BadWords for those that no workload can have."""
    limits = (
        ("spec.minReplicaCount", minimum, 0, MOST_REPLICAS),
        ("spec.maxReplicaCount", maximum, 1, MOST_REPLICAS),
        ("spec.idleReplicaCount", 0 if idle is None else idle, 0, 0),
    )
    bad = [
        BadWord(key, f"must be from {lowest} to {highest}" if highest else "must be 0", str(count))
        for key, count, lowest, highest in limits
        if not lowest <= count <= highest
    ]
    if bad:
        raise BadWords(tuple(bad))
    return Replicas(min=minimum, max=maximum, idle=None if idle is None else 0)


Place: TypeAlias = Literal["metadata", "annotations"]

# KEDA hands on all metadata of a trigger, its own connection settings included. tlsCertFile is gone since KEDA 2.17,
# and old manifests still carry it.
KEDAS = ("scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsClientCert", "tlsClientKey", "tlsCertFile")
FROM_ENV = "FromEnv"
ANNOTATION = "tidegate.dev/"
# An order to stand still, read by itself: what it stops must not hang on the words of a workload being right.
BRAKE = "brake"
# Rules that `tidegate check` should not speak of: nothing to whoever decides.
CHECK_IGNORE = "check-ignore"
# They stand on any object, and make no workload.
ASIDES = frozenset({BRAKE, CHECK_IGNORE})
PREFIXES: Mapping[Place, str] = {"metadata": "metadata.", "annotations": ANNOTATION}

_ONLY: Mapping[str, Place] = {
    "workload": "metadata",
    "replicas.min": "annotations",
    "replicas.max": "annotations",
}
_INSTEAD = {  # what says the same on the other side
    "workload": "it is for the metadata of a trigger",
    "replicas.min": "the ScaledObject's minReplicaCount says it",
    "replicas.max": "the ScaledObject's maxReplicaCount says it",
}
_NO_WORDS = {"replicas.idle"}  # an HPA has no idle count
_SOURCES = ("engine", "gateway", "objectives.gpu_engine")
_GOES_WITH = {"port": "engine", "path": "engine", "scheme": "engine"} | dict.fromkeys(
    ("gateway_kind", "gateway_port", "gateway_path", "gateway_scheme"), "gateway"
)
_HINTED = 16  # unknown keys that are looked up for what was meant: an object may carry thousands


class TriggerKey(NamedTuple):
    """One key that a tenant may write. loc: its place in a `Trigger`. is_text: its value is never a number."""

    name: str
    loc: tuple[str, ...]
    places: tuple[Place, ...]
    field: FieldInfo
    is_text: bool


def _words_of(section: type[Section], at: tuple[str, ...] = ()) -> Iterator[TriggerKey]:
    for key, field in section.model_fields.items():
        loc = (*at, field.alias or key)
        inner = next(sections_in(field.annotation), None)
        name = ".".join(loc)
        if inner is not None:
            yield from _words_of(inner, loc)
        elif name not in _NO_WORDS:
            places: tuple[Place, ...] = (_ONLY[name],) if name in _ONLY else get_args(Place)
            yield TriggerKey(name, loc, places, field, _is_text(field.annotation))


def _is_text(annotation: Any) -> bool:
    if float in get_args(annotation):  # "auto", or a number
        return False
    return annotation is str or isinstance(annotation, str) or any(_is_text(one) for one in get_args(annotation))


WORDS: Mapping[str, TriggerKey] = {word.name: word for word in _words_of(Trigger)}


def read(words: Mapping[str, str], *, place: Place) -> Trigger:
    """The words of a trigger's `metadata`, or of `annotations` (without their `tidegate.dev/`). Raises BadWords."""
    ours = {key: value for key, value in words.items() if place == "annotations" or not _is_kedas(key)}
    known = {key: WORDS[key] for key in ours if key in WORDS and place in WORDS[key].places}
    bad = list(_unknown([key for key in ours if key not in known], ours, place))
    document: dict[str, Any] = {}
    for key, word in known.items():
        *way, last = word.loc
        holder = document
        for part in way:
            holder = holder.setdefault(part, {})
        holder[last] = _value(ours[key], word)
    trigger, errors, _ = salvage(document, Trigger)
    for error in errors:
        key = ".".join(str(part) for part in error["loc"])
        bad.append(BadWord(PREFIXES[place] + key, sentence(error), ours.get(key)))
    bad += _together(ours, place)
    if bad or trigger is None:
        order = {PREFIXES[place] + key: index for index, key in enumerate(ours)}
        raise BadWords(tuple(sorted(bad, key=lambda word: order.get(word.key, -1))))
    return trigger


def check_workload(trigger: Trigger, workload: Workload, config: Config, *, place: Place) -> tuple[BadWord, ...]:
    """What is to be said of the workload that a trigger made, beside what each word may be: errors and warnings."""
    own_page = workload.gateway is None or workload.gateway.service == trigger.gateway
    said = [
        _as_word(finding, place)
        for finding in workload_findings((), workload, config)
        if own_page or finding.key[:1] != ("gateway",)  # the rest is the configuration's, and was checked there
    ]
    if own_page:
        return tuple(said)
    prefix = PREFIXES[place]
    bound = f"goes with a Service: {trigger.gateway} is a shared gateway, whose page Tidegate's configuration describes"
    said += [
        BadWord(prefix + key, bound, str(value))
        for key, source in _GOES_WITH.items()
        if source == "gateway" and (value := getattr(trigger, key)) is not None
    ]
    if trigger.model is None:
        everybodys = "is not given: the queues of all who share the gateway are counted as this workload's"
        said.append(BadWord(f"{prefix}model", everybodys, severity="warning", rule=EVERYBODYS_QUEUE))
    return tuple(said)


def _is_kedas(key: str) -> bool:
    return key.removesuffix(FROM_ENV) in KEDAS


def _value(text: str, word: TriggerKey) -> Any:
    value = resolve(text) if text else text  # an empty text is no way to say null
    return text if word.is_text and value is not None else value


def _unknown(keys: list[str], ours: Mapping[str, str], place: Place) -> Iterator[BadWord]:
    here = [name for name, word in WORDS.items() if place in word.places]
    here += [BRAKE] if place == "annotations" else []
    for key in keys[:_HINTED]:
        written = PREFIXES[place] + key
        if key in WORDS:
            yield BadWord(written, f"must not stand here: {_INSTEAD[key]}", ours[key])
        elif place == "metadata" and key.removesuffix(FROM_ENV) in WORDS:
            yield BadWord(written, f"is not resolved: write {key.removesuffix(FROM_ENV)} and its value out")
        else:
            meant = did_you_mean(key.lower().replace("-", "_"), here) if is_plain(key) else None
            hint = f"did you mean {meant}?" if meant else f"known here: {', '.join(here)}"
            yield BadWord(written, f"unknown key; {hint}")
    if len(keys) > _HINTED:
        yield BadWord(PREFIXES[place].rstrip("./"), f"has {len(keys) - _HINTED} further unknown keys")


def _together(ours: Mapping[str, str], place: Place) -> Iterator[BadWord]:
    prefix = PREFIXES[place]
    if place == "metadata" and "workload" in ours:
        for key in ours:
            if key in WORDS and key != "workload":
                yield BadWord(
                    prefix + key, "must not stand beside workload: that one's words are in Tidegate's configuration"
                )
        return
    # A misspelt source is one slip of the pen: it is not missing too.
    meant = {did_you_mean(key.lower(), WORDS) for key in list(ours)[:_HINTED] if key not in WORDS}
    present = {source for source in _SOURCES if source in ours} | meant
    for key, source in _GOES_WITH.items():
        if key in ours and source not in present:
            yield BadWord(prefix + key, f"goes with {source}, which is not given")
    if not present & set(_SOURCES):
        yield BadWord(
            f"{prefix}engine", "must be given, or gateway, or objectives.gpu_engine: else nothing says how busy it is"
        )


_SPEC = {("replicas", "min"): "spec.minReplicaCount", ("replicas", "idle"): "spec.idleReplicaCount"}


def _as_word(finding: Finding, place: Place) -> BadWord:
    key = _key_of(finding.key, place)
    return BadWord(key, finding.message, finding.got or None, finding.severity, finding.rule)


def _key_of(loc: Loc, place: Place) -> str:
    """What a tenant wrote, or could write, for a place in a workload."""
    if place == "metadata" and loc in _SPEC:
        return _SPEC[loc]
    match loc:
        case ("pods", "target"):
            return "spec.scaleTargetRef"
        case ("pods", part):
            word = str(part)
        case ("schedules", *_):
            word = "schedules"
        case ("gateway", part) if part != "service":
            word = f"gateway_{part}"
        case ("gateway", *_):
            word = "gateway"
        case _:
            word = ".".join(str(part) for part in loc)
    return PREFIXES[place] + word
