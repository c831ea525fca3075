"""A tenant's words -> a workload, or all that is wrong with them. The same for a trigger and for annotations.

What the words mean is the configuration's business. Here is what a cluster adds: objects too large to be read, the
gateways that a namespace may share, and names that Kubernetes allows and a workload cannot have.

Worked example: `gateway: llm-d` in namespace `ai` is the page of the configuration's shared gateway `llm-d` if that is
for `ai`, and else the Service `ai/llm-d`, whether or not other namespaces share a gateway of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from pydantic import ValidationError

from exporter.cluster.objects import Ref
from exporter.model import WorkloadKey

from ..config import Config, Endpoint, Replicas
from ..config.bad_words import BadWord, BadWords
from ..config.jobs import SCALED_JOB, said_of_jobs
from ..config.tenant import Trigger, TriggerWorkload
from ..config.trigger import KEDAS, PREFIXES, Place, check_workload, read
from .words import too_much

Value = TypeVar("Value")


class Asked(NamedTuple):
    """What a workload is made for. key: its own. target: what is scaled."""

    key: WorkloadKey
    target: Ref
    place: Place


class Made(NamedTuple):
    """workload: None if a problem is an error."""

    workload: TriggerWorkload | None
    problems: tuple[BadWord, ...]


def make(asked: Asked, words: Mapping[str, str], bounds: Callable[[Trigger | None], Replicas], config: Config) -> Made:
    """bounds: between how many replicas, by the words where they were readable; raises BadWords."""
    problems: list[BadWord] = []
    trigger = _or_noted(problems, lambda: read_words(words, asked.place))
    replicas = _or_noted(problems, lambda: bounds(trigger))
    if trigger is None or replicas is None:
        return Made(None, tuple(problems))
    workload = _or_noted(problems, lambda: _workload(asked, trigger, replicas, config))
    if workload is not None:
        said: Iterable[BadWord] = check_workload(trigger, workload, config, place=asked.place)
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
    return read(written, place=place)


def _workload(asked: Asked, trigger: Trigger, replicas: Replicas, config: Config) -> TriggerWorkload:
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
