"""The words of a trigger's metadata and of `tidegate.dev/` annotations, and the workload that they make.

They are those of a workload in the configuration, dotted where they are nested there. What a word may be, its default
and what it does are the configuration's own. Here is only which words a tenant has, and the workload that they make:
its pods are those of what is scaled, its gateway a Service of its own namespace or one that the configuration shares.
No word is an address to fetch.

Worked example: `Trigger(engine="vllm", gateway="chat-epp").workload(WorkloadKey("ai", "chat"), "Deployment/chat",
Replicas(max=100), None)` has `pods.target == "Deployment/chat"` and `gateway.service == "chat-epp"`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic_core import PydanticCustomError

from exporter.model import WorkloadKey

from .access import Section, Text
from .bad_words import BadWord, BadWords
from .endpoint import Endpoint, Path, Port, Scheme
from .kinds import GATEWAY_KIND
from .overrides import SCHEDULES, scheduled
from .places import GATEWAY_NAME, read_target
from .scalars import kubernetes_name
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
