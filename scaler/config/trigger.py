"""Words as Kubernetes carries them, each a string -> a `Trigger`, or everything that is wrong with them.

It knows which words stand where and refuses to know what becomes of them. Values are read as the configuration reads
unquoted ones, so "16" is a number and "null" is nothing; a model called "7" stays a name.

Worked example: `read({"scalerAddress": "tidegate:6000", "engine": "vllm", "objectives.work": "16"}, place="metadata")`
is `Trigger(engine="vllm", objectives=Objectives(work=16))`; with `"objektives.work"` it raises BadWords with
`metadata.objektives.work: unknown key; did you mean objectives.work?`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from pydantic.fields import FieldInfo

from .access import Section
from .bad_words import BadWord, BadWords, is_plain
from .finding import Finding
from .kinds import did_you_mean
from .model import Config
from .problem import Loc
from .rules import EVERYBODYS_QUEUE
from .salvage import salvage
from .tenant import Trigger, TriggerWorkload, bounds
from .tree import resolve
from .words import sections_in, sentence
from .workload import Workload
from .workload_checks import workload_findings

__all__ = [
    "WORDS",
    "BadWord",
    "BadWords",
    "Place",
    "Trigger",
    "TriggerKey",
    "TriggerWorkload",
    "bounds",
    "check_workload",
    "read",
]

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
