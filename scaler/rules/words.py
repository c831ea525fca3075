"""Rules about Tidegate's own words, in its configuration, in triggers and in annotations: TG080 to TG099.

Worked example: `BRAKE_WITHOUT_END.name` is "brake-without-end": it holds until somebody remembers it.
"""

from __future__ import annotations

from .rule import Rule

_ORDERS = "docs/how-to/overrides.md"
_GROUPS = "docs/how-to/groups.md"
_CONFIGURATION = "docs/reference/configuration.md"

ANNOTATION_NOT_READ = Rule(
    "TG080",
    "annotation-not-read",
    "warning",
    "tidegate.dev/ annotations are read on what is scaled; on this object nobody reads them.",
    "Move them to the Deployment (or StatefulSet, LeaderWorkerSet, Rollout) itself, or into the trigger's metadata.",
    "docs/reference/triggers.md",
)
BRAKE_WITHOUT_END = Rule(
    "TG081",
    "brake-without-end",
    "warning",
    "A brake without an end holds until somebody remembers to take it away.",
    "Say `until` and a moment.",
    _ORDERS,
)
BRAKE_OVER = Rule(
    "TG082",
    "brake-over",
    "warning",
    "The brake's end has passed: it orders nothing, and somebody may believe it does.",
    "Take it away, or give it a new end.",
    _ORDERS,
)
FROZEN_ASLEEP = Rule(
    "TG083",
    "frozen-asleep",
    "warning",
    "freeze holds a sleeping workload at zero too: requests wait, and nothing wakes it.",
    "Use never_down, which lets it wake.",
    _ORDERS,
)
ORDER_BEYOND_BOUNDS = Rule(
    "TG084",
    "order-beyond-bounds",
    "warning",
    "The floor is above the maximum, or the ceiling below the minimum: the bound holds.",
    "Bring the order within the bounds, or move the bounds.",
    _ORDERS,
)
RISES_SLOWLY = Rule(
    "TG085",
    "rises-slowly",
    "warning",
    "smoothing.up is slower than smoothing.down: replicas go before they come.",
    "Make smoothing.up the shorter one: requests wait for a rise, only GPUs for a fall.",
    _CONFIGURATION,
)
BOUNDS_UNUSED = Rule(
    "TG086",
    "bounds-unused",
    "warning",
    "keep_warm_min and keep_warm_max bound what keep_warm: auto learns; beside a fixed time they do nothing.",
    "Set keep_warm to auto, or take the bounds away.",
    "docs/explanation/estimators.md",
)
EVERYBODYS_QUEUE = Rule(
    "TG087",
    "everybodys-queue",
    "warning",
    "Several workloads count the whole of one gateway's queue: each scales for the load of all.",
    "Name a model for each, or put them into one group.",
    _GROUPS,
)
GROUP_INCOMPLETE = Rule(
    "TG088",
    "group-incomplete",
    "warning",
    "A group of one, or a ratio to a role that nobody plays: a misspelt name, most often.",
    "Give the members the same group and the roles the same names.",
    _GROUPS,
)
WEIGHTS_ALL_ZERO = Rule(
    "TG089",
    "weights-all-zero",
    "warning",
    "Every member's weight is 0: they share the queue evenly, since demand must not vanish.",
    "Give at least one member a weight above 0.",
    _GROUPS,
)
WITHOUT_EFFECT = Rule(
    "TG090",
    "without-effect",
    "warning",
    "A section of the configuration is there and does nothing, because what it needs is not.",
    "Add what it needs, or take it away.",
    _CONFIGURATION,
)
SNAPSHOTS_TOO_OLD = Rule(
    "TG091",
    "snapshots-too-old",
    "warning",
    "The state is kept less often than answers are believed: after a restart the kept ones are too old to hold.",
    "Make state.interval at most freshness.hold.",
    "docs/explanation/state.md",
)
IGNORED_WITHOUT_REASON = Rule(
    "TG092",
    "ignored-without-reason",
    "error",
    "tidegate.dev/check-ignore must name rules that exist, and say why each is silenced: nobody will remember.",
    'Write "TG012 because REASON", several separated by `;`.',
    "docs/reference/rules/README.md",
)
IDLE_JOBS = Rule(
    "TG093",
    "idle-jobs",
    "warning",
    "On a ScaledJob, what keeps the number above the work in hand starts Jobs with nothing to do.",
    "Leave the word out: by default the number is the work in hand, and 0 ends no Job.",
    "docs/how-to/engines/queues.md",
)

RULES = (
    ANNOTATION_NOT_READ,
    BRAKE_WITHOUT_END,
    BRAKE_OVER,
    FROZEN_ASLEEP,
    ORDER_BEYOND_BOUNDS,
    RISES_SLOWLY,
    BOUNDS_UNUSED,
    EVERYBODYS_QUEUE,
    GROUP_INCOMPLETE,
    WEIGHTS_ALL_ZERO,
    WITHOUT_EFFECT,
    SNAPSHOTS_TOO_OLD,
    IGNORED_WITHOUT_REASON,
    IDLE_JOBS,
)
