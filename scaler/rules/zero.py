"""Rules about going to zero and coming back: TG001 to TG019. Data, found by `scaler.config` and `scaler.lint`.

Worked example: `NO_WAKER.severity` is "warning": a workload without a waker is kept at one replica, and nothing breaks.
"""

from __future__ import annotations

from .rule import GITHUB, KEDA, Rule

NO_WAKER = Rule(
    "TG001",
    "no-waker",
    "warning",
    "Nothing that lives at zero replicas would see the next request, so the workload never sleeps.",
    "Name a gateway that holds or counts requests at zero, or set the minimum to 1.",
    "docs/explanation/scale-to-zero.md",
)
FIRST_REQUESTS_REFUSED = Rule(
    "TG002",
    "first-requests-refused",
    "warning",
    "This gateway turns requests away while no replica is there: the first ones fail, and wake the workload.",
    "Put something that holds requests in front (an endpoint picker, KEDA's HTTP add-on), or have callers try again.",
    "docs/explanation/scale-to-zero.md",
)
WAKES_BY_POLLING = Rule(
    "TG003",
    "wakes-by-polling",
    "warning",
    "A trigger of type external wakes at KEDA's next poll, up to pollingInterval later; external-push wakes at once.",
    "Write type: external-push.",
    f"{KEDA}/scalers/external-push/",
)
FALLBACK = Rule(
    "TG004",
    "fallback",
    "warning",
    "KEDA's fallback wakes every sleeper, or takes what serves to zero, when Tidegate knows nothing; and it does not "
    "engage when Tidegate cannot be reached at all.",
    "Leave fallback out: without it KEDA keeps what there is.",
    f"{GITHUB}/kedacore/keda/issues/7239",
)
PAUSED = Rule(
    "TG005",
    "paused",
    "warning",
    "KEDA's pauses have no end, and unpausing after the cooldown drops to zero within the second.",
    'Use tidegate.dev/brake: "freeze until ...", which ends by itself.',
    f"{KEDA}/concepts/scaling-deployments/#pause-autoscaling",
)
COOLDOWN_ADDS_UP = Rule(
    "TG006",
    "cooldown-adds-up",
    "warning",
    "cooldownPeriod (300 s where it is left out) begins when keep_warm is over: both are waited for, one after the "
    "other, on idle GPUs.",
    "Set cooldownPeriod to 30, and say with keep_warm how long to keep warm.",
    f"{KEDA}/reference/scaledobject-spec/#cooldownperiod",
)
ZERO_WHILE_LOADING = Rule(
    "TG007",
    "zero-while-loading",
    "warning",
    "initialCooldownPeriod is 0 where it is left out: a new ScaledObject whose trigger sees no request takes a running "
    "Deployment to zero at the first poll, while its model still loads.",
    "Set initialCooldownPeriod to longer than the model takes to load.",
    f"{KEDA}/reference/scaledobject-spec/#initialcooldownperiod",
)
IDLE_REPLICA_COUNT = Rule(
    "TG008",
    "idle-replica-count",
    "error",
    "KEDA and the HPA write different counts in turn: KEDA supports no idleReplicaCount but 0.",
    "Set idleReplicaCount to 0, or leave it out.",
    f"{GITHUB}/kedacore/keda/issues/2314",
)
ACTIVATION_ABOVE_TARGET = Rule(
    "TG009",
    "activation-above-target",
    "error",
    "Between target and activation the HPA asks for replicas and KEDA takes them all away: zero, under load.",
    "Set the activation value below the target; 0 wakes for the first request.",
    f"{KEDA}/concepts/scaling-deployments/#activating-and-scaling-thresholds",
)
POLLED_SELDOM = Rule(
    "TG010",
    "polled-seldom",
    "info",
    "KEDA learns only by polling that a workload may sleep: it holds its GPUs up to pollingInterval longer.",
    "Set pollingInterval to 10 to 30; Tidegate answers from memory, and a poll costs it nothing.",
    f"{KEDA}/reference/scaledobject-spec/#pollinginterval",
)
QUEUE_ALONE = Rule(
    "TG011",
    "queue-alone",
    "warning",
    "Nothing waits while everything runs: on the waiting queue alone, KEDA takes away replicas that still answer.",
    "Count running requests too: waiting + running.",
    f"{KEDA}/concepts/scaling-deployments/",
)

RULES = (
    NO_WAKER,
    FIRST_REQUESTS_REFUSED,
    WAKES_BY_POLLING,
    FALLBACK,
    PAUSED,
    COOLDOWN_ADDS_UP,
    ZERO_WHILE_LOADING,
    IDLE_REPLICA_COUNT,
    ACTIVATION_ABOVE_TARGET,
    POLLED_SELDOM,
    QUEUE_ALONE,
)
