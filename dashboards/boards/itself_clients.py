"""Builds the panels of Tidegate's clients, Kubernetes, replicas and resources for the board Itself.

Worked example: `peers()` has the panels of "Replicas and checkpoints".
"""

from __future__ import annotations

from ..panels import Column, Panel, Query, Step, graph, rows, timeline
from ..queries import AMBER, GREEN, NAVY, RED, SELF, YES_NO, self_each, self_quantile, self_rate


def calls() -> list[Panel]:
    return [
        graph(
            "Calls by method and code",
            "KEDA's calls by gRPC code, and requests to the metrics API by status. UNAVAILABLE: the decision is "
            "unknown; PERMISSION_DENIED: no watched ScaledObject matches the call; RESOURCE_EXHAUSTED: one peer has "
            "too many open calls. None at all: KEDA does not reach it (Service, NetworkPolicy, certificate).",
            "reqps",
            [Query(self_rate("tidegate_keda_request_duration_seconds_count", "method", "code"), "{{method}} {{code}}")],
            width=8,
        ),
        graph(
            "Duration of a call",
            "99 of 100 calls, by method. Responses come from memory and take about a millisecond; above 100 ms "
            "(dashed) the CPU is too small, or ticks use all of it.",
            "s",
            [Query(self_quantile(0.99, "tidegate_keda_request_duration_seconds", "method"), "{{method}} p99")],
            width=8,
            above=[Step(0.1, RED)],
        ),
        graph(
            "Ended streams",
            "KEDA's streams by code. OK and CANCELLED come with restarts of KEDA or Tidegate. Repeated UNAVAILABLE: a "
            "component in between closes long connections, and wakes wait for KEDA's next poll.",
            "ops",
            [Query(self_rate("tidegate_streams_ended_total", "method", "code"), "{{method}} {{code}}")],
            width=8,
        ),
    ]


def kubernetes() -> list[Panel]:
    return [
        timeline(
            "What is known of Kubernetes",
            "Whether the cache of each resource is complete and up to date. `no`: decisions that depend on it are "
            "held. One resource: a permission is missing; all: the API server fails. Runbook: "
            "TidegateKubernetesStale.",
            [Query(f"min by (resource) (tidegate_kubernetes_synced{{{SELF}}})", "{{resource}}")],
            YES_NO,
            width=8,
            height=8,
        ),
        *_configuration(),
        graph(
            "Invalid objects",
            "Objects of Kubernetes per second that do not match their schema, and objects with an error or warning. "
            "The Overview lists them. Runbook: TidegateObjectInvalid.",
            "short",
            [
                Query(
                    f"{self_rate('tidegate_kubernetes_malformed_objects_total', 'resource')} > 0",
                    "unreadable {{resource}}",
                ),
                Query(
                    f"sum by (severity) (max by (namespace, kind, name, severity) (tidegate_object_errors{{{SELF}}}))",
                    "{{severity}}",
                ),
            ],
            colours={"error": RED, "warning": AMBER},
        ),
        graph(
            "Kubernetes Events",
            "Events written on workloads, and those dropped by reason. `refused`: permission for events is missing; "
            "`queue` and `budget`: too many at once, which the limit is for.",
            "ops",
            [
                Query(self_rate("tidegate_events_written_total"), "written"),
                Query(self_rate("tidegate_events_dropped_total", "why"), "{{why}}"),
            ],
            colours={"written": GREEN},
        ),
    ]


def _configuration() -> list[Panel]:
    return [
        timeline(
            "Configuration and API groups",
            "Whether the last configuration is active, and whether the API server forwards each metrics API to "
            "Tidegate. Runbook: TidegateConfigRejected, TidegateMetricsApiNotRegistered.",
            [
                Query(
                    f"min by (instance) (tidegate_config_last_reload_successful{{{SELF}}})",
                    "{{instance}}: configuration",
                ),
                Query(f"max by (group, version) (tidegate_metrics_api_registered{{{SELF}}})", "{{group}}/{{version}}"),
            ],
            YES_NO,
            width=8,
            height=8,
        ),
        rows(
            "Build and configuration",
            "Versions, and since when the configuration is active. Two versions for longer than a rollout: a pod does "
            "not start, see its log.",
            [
                Query(f"max by (instance, version, python) (tidegate_build_info{{{SELF}}})"),
                Query(
                    f"1000 * {self_each('tidegate_config_last_reload_success_timestamp_seconds')}", "configuration of"
                ),
                Query(f"1000 * {self_each('process_start_time_seconds')}", "started"),
            ],
            [
                Column("instance"),
                Column("version"),
                Column("python"),
                Column("configuration of", unit="dateTimeFromNow"),
                Column("started", unit="dateTimeFromNow"),
            ],
            width=8,
        ),
    ]


def peers() -> list[Panel]:
    return [
        timeline(
            "Leader",
            "The leading replica: the others publish its Board. It changes with restarts and drains. Repeated changes: "
            "the API server is slow to renew the Lease. Runbook: TidegateNoLeader.",
            [Query(self_each("tidegate_leader"), "{{instance}}")],
            {1.0: ("leads", GREEN), 0.0: ("follows", NAVY)},
            width=8,
            height=8,
        ),
        graph(
            "Age of the leader's decisions",
            "Age of the leader's Board on each follower. A second or two is normal; if it is stale, a follower "
            "publishes its own decisions.",
            "s",
            [Query(self_each("tidegate_peer_board_age_seconds"), "{{instance}}")],
            width=8,
        ),
        graph(
            "Failed requests to the leader",
            "By kind. A few at a change of the leader are normal; else check the network between the pods and their "
            "certificates (docs/explanation/high-availability.md).",
            "ops",
            [Query(self_rate("tidegate_peer_fetch_failures_total", "kind", "instance"), "{{instance}} {{kind}}")],
            width=8,
        ),
        graph(
            "Age of the last checkpoint",
            "Time since state was written. Dashed: 5 minutes, when the alert fires. The disk is full, read-only or "
            "missing; decisions continue. Runbook: TidegateCheckpointsFail.",
            "s",
            [Query(self_each("tidegate_checkpoint_age_seconds"), "{{instance}}")],
            width=8,
            above=[Step(300, RED)],
        ),
        graph(
            "Failed checkpoints",
            "Failed writes per second. If any: the log has the error of the disk. Runbook: TidegateCheckpointsFail.",
            "ops",
            [Query(self_rate("tidegate_checkpoint_failures_total", "instance"), "{{instance}}")],
            width=8,
        ),
        graph(
            "Size of a checkpoint",
            "Compressed size of the state. Three of them must fit on the volume: raise `state.size` of the chart.",
            "bytes",
            [Query(self_each("tidegate_checkpoint_size_bytes"), "{{instance}}")],
            width=8,
        ),
    ]


def process() -> list[Panel]:
    return [
        graph(
            "Memory",
            "Resident memory of each replica. It grows with workloads and targets, and not with time: if it does, "
            "please report it. The chart's limit is 1 GiB.",
            "bytes",
            [Query(self_each("process_resident_memory_bytes"), "{{instance}}")],
            width=8,
        ),
        graph(
            "CPU",
            "CPU seconds per second of each replica. Near 1 (dashed) ticks and responses wait for each other: "
            "Tidegate uses one core. See docs/how-to/operate.md for sizes.",
            "short",
            [Query(self_rate("process_cpu_seconds_total", "instance"), "{{instance}}")],
            width=8,
            above=[Step(0.9, RED)],
        ),
        graph(
            "Open files",
            "Connections and files, against the limit (dashed). Near it, scrapes fail as `refused`: raise the limit "
            "of open files.",
            "short",
            [Query(self_each("process_open_fds"), "{{instance}}"), Query(f"min(process_max_fds{{{SELF}}})", "limit")],
            width=8,
            dashed=["limit"],
            colours={"limit": RED},
        ),
    ]
