"""Builds the tables of the Overview: workloads that need attention, and all workloads. A click opens their board.

Worked example: `_capped()` is a table with a row for each workload at its maximum, by demand.
"""

from __future__ import annotations

from ..board import TO_ITSELF, TO_WORKLOAD
from ..panels import Column, Panel, Query, Step, graph, rows
from ..queries import ORANGE, OUTCOMES, PROBLEM_CODES, REASONS, RED, of

REASON = Column("reason", colours={str(reason): colour for reason, colour in REASONS.items()})
LIST_HEIGHT = 6  # most are usually empty
NAME = (Column("namespace"), Column("workload", link=("Its board", TO_WORKLOAD)))


def needs_attention() -> list[Panel]:
    return [
        _firing(),
        _capped(),
        _held(),
        _no_wake_source(),
        _without_effect(),
        graph(
            "What KEDA and the HPA do",
            "Number of workloads by outcome: decisions are followed, wait for a stabilization window or a cooldown, "
            "are limited by configuration, or have a problem. docs/explanation/controller-outcome.md explains each "
            "code.",
            "short",
            [Query(f"count by (code) ({of('tidegate_controller_outcome', 'code')})", "{{code}}")],
            stacked=True,
            colours={str(code): colour for (_, colour), codes in OUTCOMES.items() for code in codes},
            height=LIST_HEIGHT,
        ),
        rows(
            "Invalid objects",
            "ScaledObjects, HPAs and annotations to correct. An error stops the scaling of its workload; a warning "
            "does not. `tidegate check FILE` shows line and fix. Runbook: TidegateObjectInvalid.",
            [
                Query(
                    'max by (namespace, kind, name, severity) (tidegate_object_errors{namespace=~"$namespace"})',
                    "object_errors",
                )
            ],
            [Column("severity"), Column("namespace"), Column("kind"), Column("name"), Column("object_errors")],
            height=LIST_HEIGHT,
        ),
        rows(
            "Brakes",
            "Workloads under a brake, whatever their load. Without an end it stays until it is removed: ask its owner "
            "(/api/v1/board has its source). Runbook: TidegateBrakeForgotten.",
            [
                Query(of("tidegate_workload_brake", "brake")),
                Query(f"{of('tidegate_workload_brake_until_timestamp_seconds')} * 1000", "ends"),
                Query(
                    f"{of('tidegate_replicas')} and on (namespace, workload) {of('tidegate_workload_brake')}",
                    "replicas",
                ),
            ],
            [*NAME, Column("brake"), Column("ends", unit="dateTimeFromNow"), Column("replicas")],
            height=LIST_HEIGHT,
        ),
    ]


def _firing() -> Panel:
    return rows(
        "Firing alerts",
        "Tidegate's alerts, if Prometheus has the rules of dashboards/alerts.yaml. docs/how-to/runbooks.md explains "
        "what to do about each. Runbook: TidegateDown, TidegateStuck, TidegateNoLeader.",
        [
            Query(
                "max by (alertname, severity, namespace, workload) "
                '(ALERTS{alertname=~"Tidegate.+",alertstate="firing"})'
            )
        ],
        [
            Column("severity"),
            Column("alertname", link=("Tidegate itself", TO_ITSELF)),
            Column("namespace"),
            Column("workload", link=("Its board", TO_WORKLOAD)),
        ],
        height=LIST_HEIGHT,
    )


def _problem_only(metric: str) -> str:
    return f"{of(metric)} and on (namespace, workload) {of('tidegate_controller_outcome', code='~' + PROBLEM_CODES)}"


def _only(metric: str, reasons: str) -> str:
    return f"{of(metric)} and on (namespace, workload) {of('tidegate_reason', reason=reasons)}"


def _capped() -> Panel:
    return rows(
        "At the maximum, and more is needed",
        "More replicas are needed than the maximum allows, and requests queue. `demand` is that of the largest "
        "objective. Raise the maximum, or relax the SLO. If replicas are without a node, a higher maximum "
        "does not help. Runbook: TidegateCapped.",
        [
            Query(_only("tidegate_demand_replicas", "capped"), "demand"),
            Query(_only("tidegate_replicas", "capped"), "maximum"),
            Query(_only("tidegate_requests_waiting", "capped"), "waiting"),
            Query(_only("tidegate_replicas_pending", "capped"), "without a node"),
        ],
        [
            *NAME,
            Column("demand", decimals=1),
            Column("maximum"),
            Column("waiting"),
            Column("without a node", steps=[Step(1, RED)]),
        ],
        sort="demand",
        height=LIST_HEIGHT,
    )


def _held() -> Panel:
    return rows(
        "Readings missing",
        "Readings are missing. A held decision lasts for `freshness.hold` (5 minutes by default, orange from 2) and "
        "may rise meanwhile; then it is an error, and the row has no `replicas`. The workload's board shows the "
        "failing targets. Incomplete: a response lacks a series or has it wrong; the workload is not scaled down. "
        "Runbook: TidegateDecisionHeld, TidegateDecisionUnknown, TidegateWakeSourceStale, TidegateTargetStale, "
        "TidegateReadingsIncomplete.",
        [
            Query(of("tidegate_reason", "reason", reason="~held|incomplete|unknown")),
            Query(of("tidegate_held_seconds"), "held for"),
            Query(f"{of('tidegate_stale_targets')} > 0", "silent sources"),
            Query(f"{of('tidegate_incomplete_series')} > 0", "incomplete series"),
            Query(_only("tidegate_replicas", "held"), "replicas"),
        ],
        [
            *NAME,
            REASON,
            Column("held for", unit="s", steps=[Step(120, ORANGE), Step(300, RED)]),
            Column("silent sources"),
            Column("incomplete series"),
            Column("replicas"),
        ],
        sort="held for",
        height=LIST_HEIGHT,
    )


def _no_wake_source() -> Panel:
    return rows(
        "Idle, but nothing can wake it",
        "Idle workloads that keep a replica, because no wake source lives at zero. Each row holds GPUs for nothing: "
        "configure a gateway (docs/reference/sources.md). With `replicas` 0, requests may be lost: scale it to one by "
        "hand. Runbook: TidegateCannotWake.",
        [
            Query(_only("tidegate_idle_seconds", "no_wake_source"), "idle for"),
            Query(_only("tidegate_gpus_held", "no_wake_source"), "GPUs"),
            Query(_only("tidegate_replicas", "no_wake_source"), "replicas"),
        ],
        [*NAME, Column("idle for", unit="s"), Column("GPUs"), Column("replicas")],
        sort="GPUs",
        height=LIST_HEIGHT,
    )


def _without_effect() -> Panel:
    return rows(
        "Decisions that nothing follows",
        "Nothing follows the decision: no scaler or no HPA targets the workload, two do, or its HPA uses another "
        "metric or cannot scale. `tidegate explain` shows which, and `tidegate check` the fix.",
        [
            Query(of("tidegate_controller_outcome", "code", code=f"~{PROBLEM_CODES}")),
            Query(_problem_only("tidegate_replicas"), "wanted"),
            Query(_problem_only("tidegate_spec_replicas"), "cluster"),
        ],
        [*NAME, Column("code"), Column("wanted"), Column("cluster")],
        height=LIST_HEIGHT,
    )


def all_workloads() -> Panel:
    return rows(
        "Workloads",
        "All workloads with reasons and values. `published` is the value for KEDA and the HPA, `cluster` is "
        "spec.replicas: if they differ for more than a minute or two, the workload's board shows what holds the HPA. "
        "An empty cell is unknown, not zero.",
        [
            Query(of("tidegate_reason", "reason")),
            Query(of("tidegate_replicas"), "wanted"),
            Query(of("tidegate_published_replicas"), "published"),
            Query(of("tidegate_spec_replicas"), "cluster"),
            Query(of("tidegate_replicas_ready"), "ready"),
            Query(of("tidegate_requests_waiting"), "waiting"),
            Query(of("tidegate_requests_running"), "running"),
            Query(of("tidegate_requests_held"), "held"),
            Query(of("tidegate_workload_gpu_engine_active_ratio"), "GPU activity"),
            Query(of("tidegate_gpus_held"), "GPUs"),
        ],
        [
            *NAME,
            REASON,
            Column("wanted"),
            Column("published"),
            Column("cluster"),
            Column("ready"),
            Column("waiting", decimals=0),
            Column("running", decimals=0),
            Column("held", decimals=0),
            Column("GPU activity", unit="percentunit", decimals=0),
            Column("GPUs"),
        ],
        width=24,
        height=12,
    )
