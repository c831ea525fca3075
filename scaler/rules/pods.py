"""Rules about the pods that are scaled, how they start and how they end: TG060 to TG079.

Worked example: `NO_PRESTOP.name` is "no-prestop": a pod that is scaled in gets new requests while it ends.
"""

from __future__ import annotations

from .rule import GITHUB, KUBERNETES, Rule

_ENDING = f"{KUBERNETES}/concepts/workloads/pods/pod-lifecycle/#pod-termination"
_PROBES = f"{KUBERNETES}/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/"

GRACE_TOO_SHORT = Rule(
    "TG060",
    "grace-too-short",
    "warning",
    "A pod that is scaled in is killed after terminationGracePeriodSeconds, preStop included (30 s where it is left "
    "out): answers that take longer are cut off.",
    "Set terminationGracePeriodSeconds to the preStop pause plus the longest answer, 120 or more.",
    _ENDING,
)
NO_PRESTOP = Rule(
    "TG061",
    "no-prestop",
    "warning",
    "SIGTERM comes at once, and gateways hear only later that the pod goes: requests are sent to a server that ends.",
    "Add lifecycle.preStop with a pause of 15 s.",
    f"{GITHUB}/kserve/kserve/pull/5485",
)
NO_DRAIN = Rule(
    "TG062",
    "no-drain",
    "info",
    "vLLM aborts the requests in flight at SIGTERM unless it is told to wait for them.",
    "Add --shutdown-timeout=SECONDS, below terminationGracePeriodSeconds minus the preStop pause.",
    f"{GITHUB}/vllm-project/vllm/pull/34730",
)
NO_READINESS = Rule(
    "TG063",
    "no-readiness",
    "warning",
    "Without a readinessProbe a pod counts as ready while its model still loads: it gets requests, counts as capacity, "
    "and looks idle.",
    "Add a readinessProbe on the engine's health page.",
    _PROBES,
)
KILLED_WHILE_LOADING = Rule(
    "TG064",
    "killed-while-loading",
    "warning",
    "The kubelet restarts a container whose liveness or startup probe gives up before the model is loaded: it starts "
    "from the beginning, for ever.",
    "Add a startupProbe whose periodSeconds times failureThreshold is above the longest start.",
    _PROBES,
)
TARGET_ABOVE_LIMIT = Rule(
    "TG065",
    "target-above-limit",
    "warning",
    "The target of a replica is above what its engine takes at once: the target is reached late, or never.",
    "Set the target below the engine's limit, three quarters of it.",
    f"{GITHUB}/ray-project/ray/issues/24793",
)
METRICS_OFF = Rule(
    "TG066",
    "metrics-off",
    "error",
    "The engine was started without its metrics page: its queue is never known, and nothing is decided from it.",
    "Add the engine's switch: --enable-metrics (SGLang), --metrics (llama.cpp); take --disable-log-stats out (vLLM).",
    "docs/reference/sources.md",
)

RULES = (
    GRACE_TOO_SHORT,
    NO_PRESTOP,
    NO_DRAIN,
    NO_READINESS,
    KILLED_WHILE_LOADING,
    TARGET_ABOVE_LIMIT,
    METRICS_OFF,
)
