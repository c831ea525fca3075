"""Holds the registry: which workloads exist, what each scales, which calls may name it, and what is invalid.

A value: a new registry replaces the old one, and two with the same content are equal.

Worked example: a cluster has the ScaledObject `ai/chat` (trigger `{"engine": "vllm"}`, scaling Deployment `chat`) and
the configuration has no workloads. Then `workloads` is the one workload `ai/chat`, `targets` is `{ai/chat:
ai/Deployment/chat}`, `objects` is `{("ai", "chat"): (TriggerClaim({"engine": "vllm"}, ai/chat),)}`, and `object_errors`
is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.config import Workload
from scaler.config.errors import TriggerProblem, shown
from scaler.config.rules import Severity
from scaler.config.workload import SCALED_JOB
from scaler.policy.overrides import Brake

from . import caller_check
from .caller_check import ObjectName, TriggerClaim, plain


class ObjectError(NamedTuple):
    """A problem in an object of the cluster. key: its place in the object, as `spec.triggers.0.metadata.engine`.

    message:  the bound, then the value that broke it.
    severity: only an error keeps the workload from being made.
    """

    ref: Ref
    key: str
    message: str
    severity: Severity = "error"

    def __str__(self) -> str:
        return f"{self.ref}: {'' if self.severity == 'error' else f'{self.severity}: '}{self.key}: {self.message}"


def object_error(ref: Ref, problem: TriggerProblem, at: str = "") -> ObjectError:
    """at: where in the object the problem's key begins, unless that speaks of the whole object."""
    key = problem.key if problem.key.startswith(("spec.", "object.")) else at + problem.key
    message = problem.bound if problem.value is None else f"{problem.bound}, got {shown(problem.value)}"
    return ObjectError(ref, plain(key), message, problem.severity)


@dataclass(frozen=True, slots=True)
class Registry:
    """workloads: the configuration's own first and as they stand, then those of triggers, then those of annotations,
    each by key.

    targets:  what a workload scales, where that is known.
    objects:  what the external triggers of each watched ScaledObject or ScaledJob say, by namespace and name.
    brakes:   what the annotation `tidegate.dev/brake` orders of a workload, each once.
    tolerances: of the HPA of a workload, a ratio, where it or its ScaledObject says one.
    object_errors: ordered by object, for the log and /metrics; each affects only its own workload.
    """

    workloads: tuple[Workload, ...] = ()
    targets: Mapping[WorkloadKey, Ref] = field(default_factory=dict)
    objects: Mapping[ObjectName, tuple[TriggerClaim, ...]] = field(default_factory=dict)
    brakes: Mapping[WorkloadKey, tuple[Brake, ...]] = field(default_factory=dict)
    tolerances: Mapping[WorkloadKey, float] = field(default_factory=dict)
    object_errors: tuple[ObjectError, ...] = ()

    @property
    def jobs(self) -> frozenset[WorkloadKey]:
        """The workloads with Jobs as replicas, which end by themselves."""
        return frozenset(key for key, target in self.targets.items() if target.kind == SCALED_JOB)

    @property
    def triggers(self) -> int:
        """The number of external triggers."""
        return sum(len(claims) for claims in self.objects.values())

    def authorize(self, namespace: str, name: str, metadata: Mapping[str, str]) -> WorkloadKey:
        """The workload that a call of KEDA's speaks for. Raises RejectedCall."""
        return caller_check.authorize(self.objects, namespace, name, metadata)

    def about(self, namespace: str, name: str) -> object:
        """A value that is equal as long as every call for this object gets the same result from `authorize`."""
        return self.objects.get((namespace, name))
