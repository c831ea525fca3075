"""Tidegate itself, outwards: who asks it, what Kubernetes tells it, its replicas among each other, and what it takes.

Worked example: `peers()` are the panels of "Replicas and memory of the past".
"""

from __future__ import annotations

from ..panels import Column, Panel, Query, Step, graph, rows, timeline
from ..words import AMBER, GREEN, NAVY, RED, YES_NO
from .itself_words import OWN, each, quantile, rate


def calls() -> list[Panel]:
    return [
        graph(
            "Calls by method and code",
            "KEDA's calls by gRPC code, and requests to the metrics API by status. UNAVAILABLE is how an unknown is "
            "said; PERMISSION_DENIED: a call that matches no watched ScaledObject; RESOURCE_EXHAUSTED: one peer has "
            "too many calls open. None at all: KEDA does not reach it (Service, NetworkPolicy, certificate).",
            "reqps",
            [Query(rate("tidegate_call_duration_seconds_count", "method", "code"), "{{method}} {{code}}")],
            width=8,
        ),
        graph(
            "How long an answer takes",
            "99 of 100 calls, by method. Answers come from memory and take about a millisecond; 100 ms (dashed) and "
            "more: the processor is short, or a sweep takes all of it.",
            "s",
            [Query(quantile(0.99, "tidegate_call_duration_seconds", "method"), "{{method}} p99")],
            width=8,
            above=[Step(0.1, RED)],
        ),
        graph(
            "Streams that ended",
            "KEDA's streams by code. OK and CANCELLED come with restarts of KEDA or Tidegate. UNAVAILABLE again and "
            "again: something between cuts long connections, and wakes wait for KEDA's next poll.",
            "ops",
            [Query(rate("tidegate_streams_ended_total", "method", "code"), "{{method}} {{code}}")],
            width=8,
        ),
    ]


def kubernetes() -> list[Panel]:
    return [
        timeline(
            "Resources of Kubernetes that are known",
            "Whether what is kept of each resource is complete and up to date. `no`: decisions that rest on it are "
            "held. A missing right shows as one resource, an API server as all. Runbook: TidegateKubernetesUnheard.",
            [Query(f"min by (resource) (tidegate_kubernetes_known{{{OWN}}})", "{{resource}}")],
            YES_NO,
            width=8,
            height=8,
        ),
        timeline(
            "Configuration and API groups",
            "Whether the last configuration was taken, and whether the API server forwards each metrics API to us. "
            "Runbook: TidegateConfigRejected, TidegateMetricsApiNotOurs.",
            [
                Query(
                    f"min by (instance) (tidegate_config_last_reload_successful{{{OWN}}})",
                    "{{instance}}: configuration",
                ),
                Query(f"max by (group, version) (tidegate_metrics_api_registered{{{OWN}}})", "{{group}}/{{version}}"),
            ],
            YES_NO,
            width=8,
            height=8,
        ),
        rows(
            "Build and configuration",
            "What runs, and since when its configuration is in force. Two versions for longer than a rollout: a pod "
            "does not come up, see its log.",
            [
                Query(f"max by (instance, version, python) (tidegate_build_info{{{OWN}}})"),
                Query(
                    f"1000 * {each('tidegate_config_last_reload_success_timestamp_seconds')}",
                    "configuration of",
                ),
                Query(f"1000 * {each('process_start_time_seconds')}", "started"),
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
        graph(
            "Objects that could not be read, and troubles",
            "Objects of Kubernetes per second that are not what their schema says, and how many objects somebody "
            "should change. They are named on the Overview. Runbook: TidegateObjectWrong.",
            "short",
            [
                Query(
                    f"{rate('tidegate_kubernetes_malformed_objects_total', 'resource')} > 0", "unreadable {{resource}}"
                ),
                Query(
                    f"sum by (severity) (max by (namespace, kind, name, severity) (tidegate_object_troubles{{{OWN}}}))",
                    "{{severity}}",
                ),
            ],
            colours={"error": RED, "warning": AMBER},
        ),
        graph(
            "Kubernetes Events",
            "Events that were written on workloads, and those that were not, by why. `refused`: the Role for events is "
            "missing; `queue` and `budget`: too many at once, which is what the limit is for.",
            "ops",
            [
                Query(rate("tidegate_events_written_total"), "written"),
                Query(rate("tidegate_events_dropped_total", "why"), "{{why}}"),
            ],
            colours={"written": GREEN},
        ),
    ]


def peers() -> list[Panel]:
    return [
        timeline(
            "Who leads",
            "The replica whose Board the others repeat. It changes with restarts and drains. By turns, again and "
            "again: the API server is slow to renew the Lease. Runbook: TidegateNobodyLeads.",
            [Query(each("tidegate_leader"), "{{instance}}")],
            {1.0: ("leads", GREEN), 0.0: ("follows", NAVY)},
            width=8,
            height=8,
        ),
        graph(
            "Age of the leader's Board",
            "How old the leader's word is where it is repeated. A second or two is right; when it is too old a "
            "follower answers for itself.",
            "s",
            [Query(each("tidegate_peer_board_age_seconds"), "{{instance}}")],
            width=8,
        ),
        graph(
            "Questions to the leader that failed",
            "By kind. Some at a change of the leader; else the network between the pods, or their certificates "
            "(docs/explanation/high-availability.md).",
            "ops",
            [Query(rate("tidegate_peer_fetch_failures_total", "kind", "instance"), "{{instance}} {{kind}}")],
            width=8,
        ),
        graph(
            "Age of the last snapshot",
            "Since what is remembered was written. Dashed: 5 minutes, when the alert comes. The disk is full, "
            "read-only or gone; decisions go on. Runbook: TidegateSnapshotsFail.",
            "s",
            [Query(each("tidegate_snapshot_age_seconds"), "{{instance}}")],
            width=8,
            above=[Step(300, RED)],
        ),
        graph(
            "Snapshots that failed",
            "Per second. Any: the log says what the disk says. Runbook: TidegateSnapshotsFail.",
            "ops",
            [Query(rate("tidegate_snapshot_failures_total", "instance"), "{{instance}}")],
            width=8,
        ),
        graph(
            "Size of a snapshot",
            "What is remembered, packed. Three of them must fit on the volume: raise `state.size` of the chart.",
            "bytes",
            [Query(each("tidegate_snapshot_size_bytes"), "{{instance}}")],
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
            [Query(each("process_resident_memory_bytes"), "{{instance}}")],
            width=8,
        ),
        graph(
            "Processor",
            "Processor time per second of each replica. Near 1 (dashed) sweeps and answers wait for each other: it "
            "decides on one core. See docs/how-to/operate.md for sizes.",
            "short",
            [Query(rate("process_cpu_seconds_total", "instance"), "{{instance}}")],
            width=8,
            above=[Step(0.9, RED)],
        ),
        graph(
            "Open files",
            "Connections and files, against the limit (dashed). Near it scrapes fail as `refused`: raise the limit of "
            "open files.",
            "short",
            [
                Query(each("process_open_fds"), "{{instance}}"),
                Query(f"min(process_max_fds{{{OWN}}})", "limit"),
            ],
            width=8,
            dashed=["limit"],
            colours={"limit": RED},
        ),
    ]
