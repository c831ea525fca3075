"""Lists the rules of `tidegate check`: id, name and severity. `scaler.config` and `scaler.lint` find them.

Its page in docs/reference/rules explains a rule; `scaler.lint.pages` reads it. An id is never used twice: a withdrawn
rule leaves a gap.

Worked example: `RULES["TG001"]` is `Rule("TG001", "no-wake-source", "warning")`, and its page is TG001.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

# error: it does not work, or contradicts itself. warning: it works, with harm. info: a default that costs something.
Severity: TypeAlias = Literal["error", "warning", "info"]


class Rule(NamedTuple):
    """id: permanent. name: for people."""

    id: str
    name: str
    severity: Severity

    @property
    def page(self) -> str:
        """File name of its page in docs/reference/rules."""
        return f"{self.id}.md"


# Scaling to zero and back: TG001 to TG019.
NO_WAKE_SOURCE = Rule("TG001", "no-wake-source", "warning")
FIRST_REQUESTS_REFUSED = Rule("TG002", "first-requests-refused", "warning")
WAKES_BY_POLLING = Rule("TG003", "wakes-by-polling", "warning")
FALLBACK = Rule("TG004", "fallback", "warning")
PAUSED = Rule("TG005", "paused", "warning")
COOLDOWN_ADDS_UP = Rule("TG006", "cooldown-adds-up", "warning")
ZERO_WHILE_LOADING = Rule("TG007", "zero-while-loading", "warning")
IDLE_REPLICA_COUNT = Rule("TG008", "idle-replica-count", "error")
ACTIVATION_ABOVE_TARGET = Rule("TG009", "activation-above-target", "error")
POLLED_RARELY = Rule("TG010", "polled-rarely", "info")
QUEUE_ALONE = Rule("TG011", "queue-alone", "warning")

# Who writes the replicas, within which bounds, and what the HPA does: TG020 to TG039.
TWO_WRITERS = Rule("TG020", "two-writers", "error")
REPLICAS_IN_MANIFEST = Rule("TG021", "replicas-in-manifest", "warning")
MAX_MISSING = Rule("TG022", "max-missing", "warning")
MIN_ABOVE_MAX = Rule("TG023", "min-above-max", "error")
ZERO_WITHOUT_EXTERNAL = Rule("TG024", "zero-without-external", "error")
CRON_BESIDE = Rule("TG025", "cron-beside", "warning")
FORMULA_REPLACES = Rule("TG026", "formula-replaces", "warning")
DRAIN_BLOCKED = Rule("TG027", "drain-blocked", "info")
RESTARTED_BY_VPA = Rule("TG028", "restarted-by-vpa", "warning")
SMOOTHED_TWICE = Rule("TG030", "smoothed-twice", "warning")
DEFAULT_WINDOW = Rule("TG031", "default-window", "info")
LOST_IN_TOLERANCE = Rule("TG032", "lost-in-tolerance", "info")
DIRECTION_DISABLED = Rule("TG033", "direction-disabled", "warning")
METRIC_TYPE = Rule("TG034", "metric-type", "error")
CACHED_METRICS = Rule("TG035", "cached-metrics", "warning")
PLAIN_TEXT = Rule("TG036", "plain-text", "warning")

# Queries, metrics of HPAs, and monitors: TG040 to TG059.
GPU_UTIL_ON_MIG = Rule("TG040", "gpu-util-on-mig", "error")
GPU_UTIL_AS_LOAD = Rule("TG041", "gpu-util-as-load", "warning")
MEMORY_AS_LOAD = Rule("TG042", "memory-as-load", "warning")
RATIO_AGAINST_PERCENT = Rule("TG043", "ratio-against-percent", "error")
EMPTY_IS_ZERO = Rule("TG044", "empty-is-zero", "warning")
LONG_WINDOW = Rule("TG045", "long-window", "warning")
RENAMED_METRIC = Rule("TG046", "renamed-metric", "warning")
EXPORTER_LABELS = Rule("TG047", "exporter-labels", "warning")
SCRAPED_RARELY = Rule("TG048", "scraped-rarely", "warning")

# Pods: how they start and how they end: TG060 to TG079.
GRACE_TOO_SHORT = Rule("TG060", "grace-too-short", "warning")
NO_PRESTOP = Rule("TG061", "no-prestop", "warning")
NO_DRAIN = Rule("TG062", "no-drain", "info")
NO_READINESS = Rule("TG063", "no-readiness", "warning")
KILLED_WHILE_LOADING = Rule("TG064", "killed-while-loading", "warning")
TARGET_ABOVE_LIMIT = Rule("TG065", "target-above-limit", "warning")
METRICS_OFF = Rule("TG066", "metrics-off", "error")

# Tidegate's configuration, triggers and annotations: TG080 to TG099.
ANNOTATION_NOT_READ = Rule("TG080", "annotation-not-read", "warning")
BRAKE_WITHOUT_END = Rule("TG081", "brake-without-end", "warning")
BRAKE_OVER = Rule("TG082", "brake-over", "warning")
FROZEN_AT_ZERO = Rule("TG083", "frozen-at-zero", "warning")
OVERRIDE_BEYOND_BOUNDS = Rule("TG084", "override-beyond-bounds", "warning")
RISES_SLOWLY = Rule("TG085", "rises-slowly", "warning")
BOUNDS_UNUSED = Rule("TG086", "bounds-unused", "warning")
QUEUE_OF_ALL = Rule("TG087", "queue-of-all", "warning")
GROUP_INCOMPLETE = Rule("TG088", "group-incomplete", "warning")
WEIGHTS_ALL_ZERO = Rule("TG089", "weights-all-zero", "warning")
WITHOUT_EFFECT = Rule("TG090", "without-effect", "warning")
CHECKPOINTS_TOO_OLD = Rule("TG091", "checkpoints-too-old", "warning")
IGNORED_WITHOUT_REASON = Rule("TG092", "ignored-without-reason", "error")
IDLE_JOBS = Rule("TG093", "idle-jobs", "warning")
SLO_NOT_SIZING = Rule("TG094", "slo-not-sizing", "info")
STARTS_TOO_LATE = Rule("TG095", "starts-too-late", "warning")
UNKNOWN_KEY = Rule("TG096", "unknown-key", "error")

# Only in a live cluster: TG100 to TG109.
METRIC_UNREAD = Rule("TG100", "metric-unread", "error")
TARGET_MISSING = Rule("TG101", "target-missing", "error")
NOT_READY = Rule("TG102", "not-ready", "error")
AT_MAXIMUM = Rule("TG103", "at-maximum", "info")
ON_FALLBACK = Rule("TG104", "on-fallback", "error")
RULES: Mapping[str, Rule] = {each.id: each for each in list(globals().values()) if isinstance(each, Rule)}
