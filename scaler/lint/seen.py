"""All objects of one run, found by each other: an autoscaler's workload, a workload's autoscalers. Pure.

Worked example: with a Deployment and a ScaledObject that names it in one run, `seen.workload_of(autoscaler)` is the
Deployment; in a run of the ScaledObject alone it is None, and rules about its pods have nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..config.documents import Value
from ..config.model import Config
from ..config.problem import Loc
from ..config.remark import Remark
from ..rules import Rule
from .autoscalers import Autoscaler, autoscaler
from .things import Thing
from .workloads import Workload, workload

Key: TypeAlias = tuple[str, str, str]  # kind, namespace, name


@dataclass(frozen=True, slots=True)
class Seen:
    """by_target: the autoscalers of each target, in the order of the run. keys: of every object. config: what
    they meet, if known. live: read from a cluster, where controllers have written into the objects.
    """

    things: tuple[Thing, ...]
    autoscalers: Mapping[Thing, Autoscaler]
    by_target: Mapping[Key, Sequence[Autoscaler]]
    workloads: Mapping[Key, Workload]
    keys: frozenset[Key]
    config: Config | None = None
    live: bool = False

    def workload_of(self, scaler: Autoscaler) -> Workload | None:
        return self.workloads.get(scaler.target_key)

    def scalers_of(self, target: Workload) -> Sequence[Autoscaler]:
        return self.by_target.get(target.thing.key, ())

    def is_on_gpus(self, scaler: Autoscaler) -> bool:
        """Its pods are in this run, and ask for GPUs."""
        target = self.workload_of(scaler)
        return target is not None and target.on_gpus

    def has(self, kind: str) -> bool:
        """There is any of that kind."""
        return any(one == kind for one, _, _ in self.keys)

    def of_kind(self, *kinds: str) -> list[Thing]:
        return [one for one in self.things if one.kind in kinds]


def see(things: Iterable[Thing], config: Config | None = None, *, live: bool = False) -> Seen:
    """The same object twice, in two files, is looked at in both, and is one to others: the last."""
    things = tuple(things)
    scalers = {one: found for one in things if (found := autoscaler(one)) is not None}
    by_target: dict[Key, list[Autoscaler]] = {}
    for scaler in scalers.values():
        by_target.setdefault(scaler.target_key, []).append(scaler)
    workloads = {one.key: pods for one in things if (pods := workload(one)) is not None}
    keys = frozenset(one.key for one in things)
    return Seen(things, scalers, by_target, workloads, keys, config, live)


def said(rule: Rule, loc: Loc, message: str, got: str | None = None) -> Remark:
    """A remark of a rule."""
    return Remark(loc, message, rule.severity, got, rule)


def shown_count(value: Value, *path: str | int) -> str | None:
    """What is written there, to be shown; None if nothing is."""
    found = value.at(*path)
    return None if found is None else found.text
