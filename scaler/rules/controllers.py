"""Rules about who writes the replicas, within which bounds, and what the HPA makes of a number: TG020 to TG039.

Worked example: `TWO_WRITERS.severity` is "error": two controllers of one count undo each other's writes for ever.
"""

from __future__ import annotations

from .rule import GITHUB, KEDA, KUBERNETES, Rule

_HPA = f"{KUBERNETES}/concepts/workloads/autoscaling/horizontal-pod-autoscale"

TWO_WRITERS = Rule(
    "TG020",
    "two-writers",
    "error",
    "Two autoscalers write the replicas of one workload: each undoes what the other ordered.",
    "Keep one; two triggers or metrics of one autoscaler are combined, the highest wins.",
    f"{_HPA}/",
)
REPLICAS_IN_MANIFEST = Rule(
    "TG021",
    "replicas-in-manifest",
    "warning",
    "Each time the manifest is applied, the autoscaler's replicas are set back to the number that is written there.",
    "Remove replicas from the manifest (and have Argo CD ignore /spec/replicas).",
    f"{_HPA}/#migrating-deployments-and-statefulsets-to-horizontal-autoscaling",
)
MAX_MISSING = Rule(
    "TG022",
    "max-missing",
    "warning",
    "maxReplicaCount is 100 where it is left out: one runaway queue may ask for a hundred times a replica's GPUs.",
    "Set maxReplicaCount to what the GPUs at hand can hold.",
    f"{KEDA}/reference/scaledobject-spec/#maxreplicacount",
)
MIN_ABOVE_MAX = Rule(
    "TG023",
    "min-above-max",
    "error",
    "No number is at least the minimum and at most the maximum: Kubernetes and KEDA refuse the object.",
    "Make the minimum at most the maximum.",
    f"{KEDA}/reference/scaledobject-spec/",
)
ZERO_WITHOUT_EXTERNAL = Rule(
    "TG024",
    "zero-without-external",
    "error",
    "An HPA reaches zero only with an Object or External metric: the API server refuses minReplicas: 0 without one "
    "(and before Kubernetes 1.37 without the feature gate HPAScaleToZero).",
    "Scale on Tidegate's external metric, or set minReplicas to 1.",
    f"{GITHUB}/kubernetes/enhancements/issues/2021",
)
CRON_BESIDE = Rule(
    "TG025",
    "cron-beside",
    "warning",
    "A cron trigger holds its replicas beside Tidegate's, cold at the beginning and without Tidegate's knowing.",
    "Use the word schedules of Tidegate's trigger, which has a pre-warm.",
    "docs/how-to/overrides.md",
)
FORMULA_REPLACES = Rule(
    "TG026",
    "formula-replaces",
    "warning",
    "scalingModifiers replace the metrics of all triggers by one: the HPA no longer hears Tidegate's number, and "
    "waking hangs on activationTarget.",
    "Leave scalingModifiers out beside a Tidegate trigger; objectives combine signals.",
    f"{KEDA}/concepts/scaling-deployments/#scaling-modifiers",
)
DRAIN_BLOCKED = Rule(
    "TG027",
    "drain-blocked",
    "info",
    "The PodDisruptionBudget lets no pod go while the workload is at its minimum: its GPU node cannot be drained.",
    "Use maxUnavailable: 1, or a minAvailable below the autoscaler's minimum.",
    f"{KUBERNETES}/tasks/run-application/configure-pdb/",
)
RESTARTED_BY_VPA = Rule(
    "TG028",
    "restarted-by-vpa",
    "warning",
    "A VerticalPodAutoscaler that updates by eviction restarts pods to change their CPU and memory: each restart loads "
    "the model again.",
    'Set updatePolicy.updateMode to "Initial" or "Off" for what loads minutes.',
    f"{KUBERNETES}/concepts/workloads/autoscaling/vertical-pod-autoscale/",
)
SMOOTHED_TWICE = Rule(
    "TG030",
    "smoothed-twice",
    "warning",
    "Tidegate smooths already: a stabilisation window of the HPA on top delays each rise, or keeps GPUs that nobody "
    "needs for as long again.",
    "Set stabilizationWindowSeconds to 0 for scaleUp and to at most 60 for scaleDown.",
    f"{_HPA}/#stabilization-window",
)
DEFAULT_WINDOW = Rule(
    "TG031",
    "default-window",
    "info",
    "Without behavior.scaleDown.stabilizationWindowSeconds the HPA keeps the highest number of the last 300 s, after "
    "Tidegate has smoothed.",
    "Set behavior.scaleDown.stabilizationWindowSeconds to 30.",
    f"{_HPA}/#stabilization-window",
)
LOST_IN_TOLERANCE = Rule(
    "TG032",
    "lost-in-tolerance",
    "info",
    "The HPA drops a change within 10 %: among ten replicas and more, one replica up or down is no exact step.",
    'Set tolerance: "0" for scaleUp and scaleDown (Kubernetes 1.35 and later).',
    f"{_HPA}/#tolerance",
)
DIRECTION_DISABLED = Rule(
    "TG033",
    "direction-disabled",
    "warning",
    "selectPolicy: Disabled stops the HPA in that direction for good, whatever Tidegate answers.",
    "Remove it; to hold replicas for a time, use tidegate.dev/brake.",
    f"{_HPA}/#scaling-policies",
)
METRIC_TYPE = Rule(
    "TG034",
    "metric-type",
    "error",
    "Tidegate's metric is a number of replicas: only AverageValue with target 1 makes the HPA order that number.",
    "Use type AverageValue with averageValue 1, or leave metricType of a trigger out.",
    f"{GITHUB}/kubernetes/kubernetes/issues/79272",
)
CACHED_METRICS = Rule(
    "TG035",
    "cached-metrics",
    "warning",
    "With useCachedMetrics the HPA hears a number up to pollingInterval old; Tidegate answers from memory, so nothing "
    "is gained.",
    "Leave useCachedMetrics out.",
    f"{KEDA}/concepts/scaling-deployments/#caching-metrics",
)
PLAIN_TEXT = Rule(
    "TG036",
    "plain-text",
    "warning",
    "unsafeSsl alone, and tlsCertFile since KEDA 2.17, turn no TLS on: KEDA asks in plain text.",
    'Set enableTLS: "true", or name a TriggerAuthentication with caCert and, for mutual TLS, tlsClientCert and '
    "tlsClientKey.",
    f"{KEDA}/scalers/external/",
)

RULES = (
    TWO_WRITERS,
    REPLICAS_IN_MANIFEST,
    MAX_MISSING,
    MIN_ABOVE_MAX,
    ZERO_WITHOUT_EXTERNAL,
    CRON_BESIDE,
    FORMULA_REPLACES,
    DRAIN_BLOCKED,
    RESTARTED_BY_VPA,
    SMOOTHED_TWICE,
    DEFAULT_WINDOW,
    LOST_IN_TOLERANCE,
    DIRECTION_DISABLED,
    METRIC_TYPE,
    CACHED_METRICS,
    PLAIN_TEXT,
)
