"""Defines a workload: its targets, its bounds, its objectives, and when it is idle.

Worked example: a workload with `engine: tgi` of two replicas at `objectives.work: 16` with 40 requests waiting or
running needs 40 / 16 = 2.5 replicas, so 3. With `kv_cache: 0.9` and caches 95 % full on average it needs
2 x 0.95 / 0.9 = 2.1, so 3 as well; the objective that needs most replicas decides. With `engine: vllm` and without
`objectives.work` the SLO decides alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import Field

from exporter.catalog import KINDS
from exporter.model import WorkloadKey
from scaler.policy.overrides import Brake

from .endpoint import Endpoint, Many, Section, Text
from .errors import TriggerProblem
from .overrides import BRAKE, Schedule
from .rules import IDLE_JOBS, NO_WAKE_SOURCE, RISES_SLOWLY
from .scalars import (
    AUTO,
    ENGINE,
    GATEWAY,
    GLOB,
    REDIS,
    ZERO,
    auto_or_duration,
    duration,
    kubernetes_name,
    place_or_price,
    write_duration,
)

Ratio: TypeAlias = Annotated[float, Field(gt=0, le=1, title="ratio")]
Seconds: TypeAlias = Annotated[float, duration()]
Engine: TypeAlias = Annotated[str, ENGINE]
KeepWarm: TypeAlias = Annotated[float | Literal["auto"], auto_or_duration("learned")]
Band: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Quiet: TypeAlias = Annotated[float, Field(ge=0, lt=1, title="ratio")]
Mode: TypeAlias = Literal["act", "observe"]
Tolerance: TypeAlias = Annotated[float, Field(ge=0, le=1, title="ratio")]
ProbePeriod: TypeAlias = Annotated[float, duration(at_most_s=300)]
Group: TypeAlias = Annotated[str, kubernetes_name(63, "group")]
Role: TypeAlias = Annotated[str, kubernetes_name(63, "role")]
Price: TypeAlias = Annotated[float, Field(gt=0)]
Weight: TypeAlias = Annotated[float, Field(ge=0, le=1_000_000)]
Order: TypeAlias = Annotated[int | Literal["price"], place_or_price(100)]
OnBlind: TypeAlias = Literal["hold", "wake"]
OnIncomplete: TypeAlias = Literal["hold", "accept"]

# As KEDA's cooldownPeriod, 300 s by default.
UNLEARNED_KEEP_WARM_S = 300.0
# Twice the nodes of the largest supported cluster (5,000): more is a typing mistake.
MOST_REPLICAS = 10_000
MOST_PRIORITY = 1000
SCALED_JOB = "ScaledJob"

# What shows a request at zero replicas on the gateway's metrics, by `Kind.at_zero`.
_WAKE_SIGNALS = {
    "queue": "the queue",
    "in_flight": "the requests in flight",
    "refused": "refused requests",
    "counted": "the count of requests",
}
_STARTS_IDLE = "KEDA would start Jobs with nothing to do"

AnySection = TypeVar("AnySection", bound=Section)


class Replicas(Section):
    """Bounds. KEDA's or the HPA's own bounds apply after them."""

    min: Annotated[int, Field(ge=0, le=MOST_REPLICAS)] = 0
    """Minimum, idle or not. 0 allows scaling to zero and needs a `gateway`."""
    max: Annotated[int, Field(ge=1, le=MOST_REPLICAS)] = 10
    """Maximum. Demand above it has reason `capped`."""
    idle: Annotated[int, ZERO] | None = None
    """Like KEDA's `idleReplicaCount`: zero, or at least `min` replicas. Needs a `gateway`."""

    @property
    def sleeps(self) -> bool:
        """Whether it may go to zero."""
        return self.min == 0 or self.idle == 0


class Objectives(Section):
    """What one replica should carry. The objective that requests the most replicas wins."""

    work: Annotated[float, Field(gt=0)] | None = None
    """Waiting and running requests per replica. Higher is cheaper and slower. null: none where an `slo` or the time of
    a request sizes the workload, otherwise the default of the `engine`."""
    kv_cache: Ratio | None = 0.9
    """Mean KV-cache usage above which replicas are added: at 1 engines preempt requests. Not used where the `slo` alone
    sizes the workload. null: no guard. ScaledJob default: null."""
    gpu_engine: Ratio | None = None
    """Mean GPU engine activity per replica, for batch work without a queue; one request can saturate it. Needs `gpus`,
    or dcgm-exporter found through `kubernetes`."""


class Slo(Section):
    """Objective of a language model, `ttft` and `itl`, or of a queue, `start_within` (docs/explanation/sizing.md)."""

    ttft: Annotated[float, duration(0.01, 3600.0)] = 2.0
    """Time to first token. A queue that takes longer than half of it adds replicas that drain it."""
    itl: Annotated[float, duration(0.001, 60.0)] = 0.06
    """Time between two tokens (inter-token latency). Shorter needs more replicas, which shorten no decode step of a
    single request (10 to 30 ms)."""
    start_within: Annotated[float, duration(1.0, 604_800.0)] | None = None
    """Time from a job's arrival in the queue of the `gateway` to its start. Less than a start-up time: only standing
    replicas meet it."""


class Smoothing(Section):
    """Half-lives of demand. The HPA should not smooth again."""

    up: Seconds = 5.0
    """Half-life of a rise: 0, or at least the scrape interval. Longer ignores bursts and delays real rises. ScaledJob
    default: 0."""
    down: Seconds = 60.0
    """Half-life of a fall. Longer keeps replicas through pauses and costs GPU time. ScaledJob default: 0."""


class RoleRatio(Section):
    """Replicas of this workload's role per replica of another role of its group, rounded up. A role with too few is
    raised; none is lowered. `replicas.max` wins.
    """

    to: Annotated[str, kubernetes_name(63, "role")]
    """The other role, such as `prefill`."""
    min: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """Minimum; 0.5 is one for two. 0: none."""
    max: Annotated[float, Field(ge=0.001, le=1000)] | None = None
    """Maximum; above it the other role is raised. null: none."""


class GpuShare(Section):
    """Its part of the GPUs where `sharing` divides them (docs/how-to/share-gpus.md)."""

    priority: Annotated[int, Field(ge=-MOST_PRIORITY, le=MOST_PRIORITY)] = 0
    """A higher one is served first, and may take replicas from lower ones."""
    weight: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    """Part among those of its priority that want more: its weight divided by their sum."""


class SleepMode(Section):
    """vLLM's sleep mode (docs/how-to/groups.md)."""

    gpu_share: Ratio = 1.0
    """Part of its GPUs' price that a replica costs asleep. At 1 sleep never pays."""
    after: KeepWarm = AUTO
    """Idle time before sleep. `auto`: the cheapest."""
    calls: bool = False
    """Whether Tidegate calls the engines. false: it publishes the state."""
    timeout: Annotated[float, duration(1.0, 600.0)] = 60.0
    """Time for one call."""


class Workload(Section):
    """One scale target: a Deployment, StatefulSet or LeaderWorkerSet, as KEDA or the HPA names it."""

    namespace: Annotated[str, kubernetes_name(63, "namespace")]
    """Its namespace. KEDA's calls are accepted only for it."""
    name: Annotated[str, kubernetes_name(253, "workload")]
    """Its name, the prefix of its pods' names."""
    engine: Engine | None = None
    """Inference engine: how the pods' metrics are read; default port, path and `objectives.work`. Required with
    `pods`."""
    model: Text | None = None
    """Queue to count: an engine's `model_name`, a pool or a key. null counts all, also those of other workloads at the
    same gateway."""
    pods: Endpoint | None = None
    """The engines' metrics endpoints, one per pod. null: only the gateway's queue and GPUs count."""
    gateway: Endpoint | None = None
    """Wake source: runs at zero replicas and shows the next request. Without it one replica is kept."""
    pod_pattern: Annotated[str, GLOB] | None = None
    """Glob of its pods' names in dcgm-exporter's labels. null: the names that a Deployment or StatefulSet creates."""
    replicas: Replicas = Replicas()
    """Bounds."""
    keep_warm: KeepWarm = AUTO
    """Idle time before scaling to zero, at least 3 scrape intervals. `auto` estimates it from pauses, starts and
    `prices`, and starts ahead of a predictable return (docs/explanation/estimators.md). ScaledJob default: 0."""
    keep_warm_min: Seconds = 60.0
    """Lower bound of `keep_warm: auto`; at least 3 scrape intervals."""
    keep_warm_max: Seconds = 14400.0
    """Upper bound of `keep_warm: auto`, also of an early start."""
    on_blind: OnBlind = "hold"
    """Reaction at zero if the wake source is silent for `freshness.hold`. `hold`: stay at zero. `wake`: one replica (or
    `min`) until it responds."""
    on_incomplete: OnIncomplete = "hold"
    """Reaction to an incomplete response (docs/explanation/concepts.md). `hold`: its values are a lower bound.
    `accept`: they count as complete, which may scale a busy workload to zero."""
    lease_max: Seconds = 1800.0
    """Maximum of the start-up grace (docs/explanation/scale-to-zero.md). ScaledJob default: 0."""
    slo: Slo | None = None
    """Objective of a language model's latency, or of a queue. It sizes engines that count tokens, and queues, alone,
    unless `objectives.work` is given too; of triton and trtllm it is only measured. null: the defaults of an engine
    that it sizes, if `objectives.work` is not given. A ScaledJob ignores it."""
    objectives: Objectives = Objectives()
    """What one replica should carry."""
    smoothing: Smoothing = Smoothing()
    """Half-lives of demand."""
    scale_down_band: Band = 0.2
    """Replicas by which demand must fall below a step before scale-down. 0 flaps; 1 keeps almost a replica too many.
    ScaledJob default: 0."""
    gpu_quiet: Quiet = 0.02
    """Engine activity up to which a GPU is quiet. Higher allows zero while something runs; at 0 a stray kernel keeps
    the workload up."""
    schedules: Annotated[tuple[Schedule, ...], Many] = ()
    """Times with a floor or a ceiling."""
    brake: Annotated[Brake, BRAKE] | None = None
    """Brake (docs/how-to/overrides.md)."""
    probe_period: ProbePeriod = 60.0
    """Mean interval up to which regular requests count as health probes (docs/how-to/health-checks.md). 0 counts every
    request."""
    hpa_tolerance: Tolerance = 0.1
    """The cluster's `--horizontal-pod-autoscaler-tolerance`, used if neither HPA nor ScaledObject sets
    `behavior.scaleUp.tolerance`. Too high overshoots; too low loses steps."""
    gpu_hour: Price | None = None
    """Cost of one of its GPUs for an hour. null: `prices`."""
    group: Group | None = None
    """Group of workloads of one namespace (docs/how-to/groups.md). null: it counts the whole queue of its gateway."""
    role: Role | None = None
    """Its part in each request of the group: `prefill`, `decode` or another name. Needs `group`."""
    weight: Weight = 1.0
    """Share of the queue among members of one role: its weight divided by their sum. 0: no share."""
    order: Order = 0
    """Members of one role with a lower one get the queue first. `price`, for a whole role: the cheapest
    (docs/how-to/groups.md)."""
    ratio: RoleRatio | None = None
    """Bounds relative to another role. Needs `role`."""
    share: GpuShare = GpuShare()
    """Its part of shared GPUs. Without `sharing` it has no effect."""
    sleep_mode: SleepMode | None = None
    """Sleep of idle engines."""
    mode: Mode | None = None
    """Whether callers get the value (`act`) or an error (`observe`). null: `mode` of the file."""

    @property
    def key(self) -> WorkloadKey:
        return WorkloadKey(self.namespace, self.name)

    @property
    def learns_keep_warm(self) -> bool:
        return self.keep_warm == AUTO

    @property
    def constant_keep_warm(self) -> float:
        """Seconds idle before zero; of `auto`, until it is learned."""
        return UNLEARNED_KEEP_WARM_S if self.keep_warm == AUTO else self.keep_warm

    @property
    def gateway_kind(self) -> str:
        """The kind of the gateway."""
        if self.gateway is None:
            return GATEWAY
        return self.gateway.kind or (REDIS if self.gateway.redis is not None else GATEWAY)

    @property
    def latency(self) -> Slo | None:
        """The latency objective that is measured: the given one, the default where it sizes the workload, or None."""
        if self.start_within is not None:
            return None
        if self.slo is not None or self.pods is None or self.engine is None:
            return self.slo
        return Slo() if KINDS[self.engine].sized_by_slo and self.objectives.work is None else None

    @property
    def sized_by_slo(self) -> bool:
        """Whether its SLO sizes it; the engine may expose too little for that and show whether it is met."""
        if self.start_within is not None:
            return True
        return self.latency is not None and self.engine is not None and KINDS[self.engine].sized_by_slo

    @property
    def sized_by_time(self) -> bool:
        """Whether the time of its requests sizes it while its engine exposes no counters of tokens."""
        if self.pods is None or self.engine is None or self.objectives.work is not None:
            return False
        return self.start_within is None and KINDS[self.engine].times_requests

    @property
    def start_within(self) -> float | None:
        """Seconds within which each job of its queue must start; None without that SLO."""
        return None if self.slo is None else self.slo.start_within

    @property
    def work(self) -> float | None:
        """Waiting and running requests per replica; None without a queue."""
        if self.pods is None and self.gateway is None:
            return None
        return self.objectives.work or KINDS[self.engine or self.gateway_kind].work


def for_jobs(workload: Workload) -> Workload:
    """The workload with the ScaledJob defaults in place of values that are not given.

    KEDA starts as many Jobs as published, minus those that run, and ends none. So zero is harmless, and a number that
    is too high starts Jobs without work (pkg/scaling/executor/scale_jobs.go): nothing is kept warm or smoothed, there
    is no start-up grace, and no KV-cache guard.

    Worked example: with only `smoothing.down: 30s`, half-lives are 0 s up and 30 s down, and keep_warm is 0.
    """
    return _unless_written(
        workload,
        keep_warm=0.0,
        lease_max=0.0,
        scale_down_band=0.0,
        smoothing=_unless_written(workload.smoothing, up=0.0, down=0.0),
        objectives=_unless_written(workload.objectives, kv_cache=None),
    )


def job_problems(problems: Iterable[TriggerProblem], workload: Workload, prefix: str) -> Iterator[TriggerProblem]:
    """The problems of a workload of a ScaledJob. prefix: of its keys, such as "metadata."."""
    for problem in problems:
        if problem.rule is NO_WAKE_SOURCE:
            bound = "nothing shows work while no Job runs, so none is started (reason no_wake_source)"
            yield problem._replace(key=f"{prefix}gateway", bound=bound)
        elif problem.rule is not RISES_SLOWLY:  # KEDA ends no Job
            yield problem
    yield from _idle_jobs(workload, prefix)


def _idle_jobs(workload: Workload, prefix: str) -> Iterator[TriggerProblem]:
    """Keys that keep the number of Jobs above the work."""
    of_jobs = for_jobs(workload)
    smoothing, objectives, keep_warm = of_jobs.smoothing, of_jobs.objectives, of_jobs.keep_warm
    values = (
        ("keep_warm", keep_warm, keep_warm if isinstance(keep_warm, str) else write_duration(keep_warm)),
        ("lease_max", of_jobs.lease_max, write_duration(of_jobs.lease_max)),
        ("smoothing.down", smoothing.down, write_duration(smoothing.down)),
        ("scale_down_band", of_jobs.scale_down_band, f"{of_jobs.scale_down_band:g}"),
        ("objectives.kv_cache", objectives.kv_cache, f"{objectives.kv_cache}"),
        ("objectives.gpu_engine", objectives.gpu_engine, f"{objectives.gpu_engine}"),
        ("on_blind", of_jobs.on_blind == "wake", of_jobs.on_blind),
    )
    for key, value, shown in values:
        if value:
            bound = f"keeps the number above the work in hand: {_STARTS_IDLE}; leave it out"
            yield TriggerProblem(prefix + key, bound, shown, "warning", IDLE_JOBS)
    if any(schedule.floor for schedule in of_jobs.schedules):
        bound = f"a floor is kept whether there is work or not: {_STARTS_IDLE}"
        yield TriggerProblem(f"{prefix}schedules", bound, None, "warning", IDLE_JOBS)


def _unless_written(section: AnySection, **defaults: object) -> AnySection:
    """The section with defaults for keys that are not given. A nested section replaces the whole key."""
    nested = {key for key, value in defaults.items() if isinstance(value, Section)}
    update = {key: value for key, value in defaults.items() if key in nested or key not in section.model_fields_set}
    return section.model_copy(update=update)


def at_zero(workload: Workload) -> str:
    """The effect of a request at zero replicas on its gateway's metrics: `Kind.at_zero`."""
    return KINDS[workload.gateway_kind].at_zero if workload.gateway is not None else "nothing"


def woken_by(workload: Workload) -> str:
    """The configured wake source, as text. Not from a scrape: the Board has what the gateway exposes.

    Worked example: for `gateway: {url: ..., kind: envoy}`, "woken by refused requests of its gateway (envoy)".
    """
    if not workload.replicas.sleeps:
        return "never at zero: replicas.min is above 0"
    signal = _WAKE_SIGNALS.get(at_zero(workload))
    if signal is None:
        return "kept at one replica at least: nothing would show a request at zero (reason no_wake_source)"
    return f"woken by {signal} of its gateway ({workload.gateway_kind})"
