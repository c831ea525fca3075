"""What is asked for one workload: its pages, its bounds, and when it is big enough.

Worked example: a workload of two replicas at `objectives.work: 16` with 40 requests waiting or running needs
40 / 16 = 2.5 replicas, so 3. With `kv_cache: 0.9` and caches 95 % full on average it needs 2 x 0.95 / 0.9 = 2.1, so
3 as well; the largest of what the objectives ask for is taken.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from exporter.catalog import KINDS
from exporter.model import WorkloadKey

from ..orders import Brake
from .endpoint import Endpoint, Many, Section, Text
from .kinds import ENGINE, GATEWAY, REDIS
from .orders import BRAKE, Schedule
from .scalars import AUTO, GLOB, ZERO, auto_or_duration, duration, kubernetes_name

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
Weight: TypeAlias = Annotated[float, Field(ge=0, le=1_000_000)]
OnBlind: TypeAlias = Literal["hold", "wake"]
OnIncomplete: TypeAlias = Literal["hold", "accept"]

# Where nothing is known the usual: KEDA's cooldownPeriod is 300 s by default.
UNLEARNED_KEEP_WARM_S = 300.0
# Twice the nodes of the largest supported cluster (5,000): more is a typing mistake.
MOST_REPLICAS = 10_000


class Replicas(Section):
    """Between how many replicas Tidegate may choose. KEDA's or the HPA's own bounds apply after it."""

    min: Annotated[int, Field(ge=0, le=MOST_REPLICAS)] = 0
    """At least so many, idle or not. 0 lets an idle workload sleep; it needs a `gateway` that can see the next
    request, else one replica is kept."""
    max: Annotated[int, Field(ge=1, le=MOST_REPLICAS)] = 10
    """At most so many, whatever the demand. What is asked for beyond it shows as reason `capped`."""
    idle: Annotated[int, ZERO] | None = None
    """0 lets it sleep though `min` is above 0, as KEDA's idleReplicaCount does: it is either asleep or has at least
    `min` replicas. It needs a `gateway`, as with `min: 0`."""

    @property
    def sleeps(self) -> bool:
        """It may go to zero."""
        return self.min == 0 or self.idle == 0


class Objectives(Section):
    """What one replica should carry. Each objective asks for replicas by itself; the largest wins."""

    work: Annotated[float, Field(gt=0)] | None = None
    """Requests, waiting or running, that a replica should hold. Higher is cheaper and slower. Without it a place to
    start, by the engine; measure your own model."""
    kv_cache: Ratio | None = 0.9
    """Guard: mean use of the KV cache (ratio) above which replicas are added, whatever `work` says. Lower adds them
    sooner; at 1 engines throw requests out of the cache and begin them again. null: no guard. For a ScaledJob, where
    it is not written: null."""
    gpu_engine: Ratio | None = None
    """Mean GPU engine activity (ratio) that a replica should show. Off, because one request can peg it; it is for
    batch work that has no queue. Needs `gpus`, or dcgm-exporter found through `kubernetes`."""


class Smoothing(Section):
    """Half-lives with which demand is smoothed, once: the HPA should not smooth again."""

    up: Seconds = 5.0
    """After so long half of a rise is believed. Longer rides out bursts and makes the first requests of a real rise
    wait; 0 believes every reading. Shorter than the scrape interval is nothing that could be measured. For a ScaledJob,
    where it is not written: 0."""
    down: Seconds = 60.0
    """After so long half of a fall is believed. Longer keeps replicas through pauses; shorter saves GPU time and
    pays in cold starts. For a ScaledJob, where it is not written: 0, since KEDA starts a Job for each that has ended
    while the number is still high."""


class RoleRatio(Section):
    """How many replicas this workload's role has for each replica of another role of its group. The role that has too
    few is raised, none is lowered, and `replicas.max` wins. Whole replicas are rounded up.
    """

    to: Annotated[str, kubernetes_name(63, "role")]
    """The other role: `prefill` on a member of role `decode`."""
    min: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """At least so many replicas of this role for one of the other: 0.5 is one for two. Higher keeps more of this role
    for the work of the other; 0 is no bound."""
    max: Annotated[float, Field(ge=0.001, le=1000)] | None = None
    """At most so many: beyond it the other role is raised. Lower keeps more of the other; null is no bound."""


class Workload(Section):
    """One scale target: a Deployment, StatefulSet or LeaderWorkerSet, as KEDA or the HPA names it."""

    namespace: Annotated[str, kubernetes_name(63, "namespace")]
    """Its namespace. KEDA's calls are believed only for this one."""
    name: Annotated[str, kubernetes_name(253, "workload")]
    """Its name, which its pods' names begin with."""
    engine: Engine | None = None
    """What serves the requests: decides how the pods' pages are read, their usual port and path, and the default of
    `objectives.work`. Needed with `pods`."""
    model: Text | None = None
    """Only this queue of the pages counts: `model_name` of an engine, the name of a pool or key. null counts all of
    them, which is wrong where one gateway's page serves several workloads."""
    pods: Endpoint | None = None
    """The engines' own pages, one per pod. Without them only a gateway's queue or GPU activity is known."""
    gateway: Endpoint | None = None
    """A page that lives at zero replicas and sees the next request. Without it nothing can wake the workload, so
    one replica is kept."""
    pod_pattern: Annotated[str, GLOB] | None = None
    """Glob of its pods' names, as dcgm-exporter labels them. null: the names that a Deployment or StatefulSet of
    this name makes. A pattern that is too wide counts a neighbour's GPUs as this workload's."""
    replicas: Replicas = Replicas()
    """Between how many replicas to choose."""
    keep_warm: KeepWarm = AUTO
    """Idle for so long before zero: nothing waiting, nothing running, counters flat, GPUs quiet. `auto` learns it from
    the workload's own rests, its starts and `prices`, and starts it in advance of a return that can be foretold; until
    a start has been measured it is 5m. A duration stays what it is: shorter saves GPU time and pays in cold starts. At
    least 3 scrape intervals: fewer readings prove nothing. For a ScaledJob, where it is not written: none, since zero
    ends no Job. See docs/explanation/estimators.md."""
    keep_warm_min: Seconds = 60.0
    """`keep_warm: auto` never sleeps sooner. Lower trusts what was learned with sleeping almost at once; 3 scrape
    intervals are the least, whatever this says."""
    keep_warm_max: Seconds = 14400.0
    """`keep_warm: auto` never keeps a workload warm for longer, nor up in advance. Lower bounds what one idle replica
    can cost, and cuts short what a dear start would be worth."""
    on_blind: OnBlind = "hold"
    """What becomes of a sleeper when the page that would show its next request is silent for longer than
    `freshness.hold`. `hold` leaves it asleep; `wake` answers one replica (or `min`) until the page speaks again, and
    costs that replica in every outage of the gateway."""
    on_incomplete: OnIncomplete = "hold"
    """What becomes of a response that lacks a series which its target exposed before, or has it invalid, unparsable, or
    twice with different values. `hold` takes what is known as a lower bound: replicas may rise, none is taken away, and
    nothing counts as idle until the response is complete again. `accept` takes it as it is: for a target that is known
    to be so, at the risk that a busy workload is put to sleep."""
    lease_max: Seconds = 1800.0
    """A workload that was woken is kept up for as long as it takes until its first replica is ready, and for so long at
    most where nobody waits any more: a start that hangs costs no more. Once starts have been seen, the lease is twice
    what nine of ten took, and a minute; until then it is this. For a ScaledJob, where it is not written: none."""
    objectives: Objectives = Objectives()
    """What one replica should carry."""
    smoothing: Smoothing = Smoothing()
    """How fast demand is believed."""
    scale_down_band: Band = 0.2
    """Replicas by which demand must fall below a step before the step is taken down. 0 follows demand exactly and
    flaps at each edge; 1 holds nearly a replica too many. For a ScaledJob, where it is not written: 0."""
    gpu_quiet: Quiet = 0.02
    """Engine activity (ratio) at or below which a GPU counts as quiet. Higher lets a workload sleep while something
    still runs on its GPUs; 0 keeps it awake for a stray kernel."""
    schedules: Annotated[tuple[Schedule, ...], Many] = ()
    """Hours with a floor or a ceiling of replicas."""
    brake: Annotated[Brake, BRAKE] | None = None
    """`freeze`, `never_down` or `floor N`, then `until` and a moment, and `because` and a reason. It holds beside the
    brake for all and those of annotations, the most careful first. See docs/how-to/overrides.md."""
    probe_period: ProbePeriod = 60.0
    """Requests that come as regularly as a clock, no further apart than this, with no tokens, no request in flight and
    no GPU activity beside them, are taken for health probes, which keep nothing awake. Longer lets rarer probes go
    unheeded and takes longer to tell; 0 counts every request."""
    hpa_tolerance: Tolerance = 0.1
    """Change of the replicas (ratio) that the HorizontalPodAutoscaler drops as too small, where neither it nor the
    ScaledObject says `behavior.scaleUp.tolerance`: the cluster's `--horizontal-pod-autoscaler-tolerance`. A step up
    within it is told rounded outward, to the next number that is not dropped. Higher than the cluster's overshoots by
    replicas that nobody asked for; lower, or 0, loses steps: with 10 % every single one from 10 replicas up."""
    group: Group | None = None
    """Workloads of one namespace that name the same group belong together. Those of one `role`, or of none, stand
    behind one queue: what a gateway holds is shared by `weight` and not counted by each. Those of different roles sleep
    and wake together. null: it stands by itself, and counts the whole of its gateway's queue."""
    role: Role | None = None
    """What it does for each request of its group: `prefill`, `decode`, or a name of your own. Each role gets the whole
    of the demand. A group of several roles is awake while any member is. Needs `group`."""
    weight: Weight = 1.0
    """Its part of the queue that it shares with its group's members of the same role: its weight divided by the sum of
    theirs. As the gateway's own weights are. 0 gets nothing, and is neither woken nor kept awake by the others."""
    ratio: RoleRatio | None = None
    """Bounds on the replicas of its role, in replicas for each replica of another role. null: each role is sized by its
    own objectives alone. Needs `role`."""
    mode: Mode | None = None
    """`observe` decides, publishes, and counts what would have been saved, but whoever asks for the number gets an
    error: a way to watch Tidegate before it is given the wheel. `act` gives it the wheel. null: what `mode` of the
    whole configuration says. See docs/how-to/observe-first.md."""

    @property
    def key(self) -> WorkloadKey:
        return WorkloadKey(self.namespace, self.name)

    @property
    def learns_keep_warm(self) -> bool:
        return self.keep_warm == AUTO

    @property
    def constant_keep_warm(self) -> float:
        """Seconds idle before zero, where that is not learned, or not yet."""
        return UNLEARNED_KEEP_WARM_S if self.keep_warm == AUTO else self.keep_warm

    @property
    def gateway_kind(self) -> str:
        """The kind of the gateway's page."""
        if self.gateway is None:
            return GATEWAY
        return self.gateway.kind or (REDIS if self.gateway.redis is not None else GATEWAY)

    @property
    def work(self) -> float | None:
        """Requests a replica should hold; None where no queue is asked."""
        if self.pods is None and self.gateway is None:
            return None
        return self.objectives.work or KINDS[self.engine or self.gateway_kind].work
