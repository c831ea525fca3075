"""Overview, by name: the workloads that need somebody, and all of them. A click on one opens its own board.

Worked example: `capped()` is a table with a row for each workload at its maximum, the neediest first.
"""

from __future__ import annotations

from ..board import TO_ITSELF, TO_WORKLOAD
from ..panels import Column, Panel, Query, Step, graph, rows
from ..words import ORANGE, OUTLOOKS, REASONS, RED, TO_LOOK_AT, of

REASON = Column("reason", colours={str(reason): colour for reason, colour in REASONS.items()})
LIST_HEIGHT = 6  # most of them are empty on a good day
NAME = (Column("namespace"), Column("workload", link=("Its board", TO_WORKLOAD)))


def needs_somebody() -> list[Panel]:
    return [
        _firing(),
        _capped(),
        _held(),
        _no_waker(),
        _nobody_acts(),
        graph(
            "What becomes of the answers",
            "How many workloads' answers are followed, wait for a stabilisation window or a cooldown, stay where "
            "somebody's limits hold them, or are not heard. docs/explanation/controller-outcome.md says what each "
            "code is.",
            "short",
            [Query(f"count by (code) ({of('tidegate_outlook', 'code')})", "{{code}}")],
            stacked=True,
            colours={str(code): colour for (_, colour), codes in OUTLOOKS.items() for code in codes},
            height=LIST_HEIGHT,
        ),
        rows(
            "Objects that ask for what cannot be",
            "ScaledObjects, HPAs and annotations that somebody should change. An error costs its workload the scaling; "
            "a warning does not. `tidegate check FILE` says what, with line and fix. Runbook: TidegateObjectWrong.",
            [
                Query(
                    'max by (namespace, kind, name, severity) (tidegate_object_troubles{namespace=~"$namespace"})',
                    "troubles",
                )
            ],
            [Column("severity"), Column("namespace"), Column("kind"), Column("name"), Column("troubles")],
            height=LIST_HEIGHT,
        ),
        rows(
            "Brakes",
            "Workloads that a person holds, whatever their load is. No end: it stands until somebody takes it off. Ask "
            "who pulled it (the board of /api/v1/board says where). Runbook: TidegateBrakeLeftOn.",
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
        "Alerts that fire",
        "Tidegate's own alerts, where Prometheus has the rules of dashboards/alerts.yaml. docs/how-to/runbooks.md "
        "says what "
        "to do about each, beginning with what holds meanwhile. Runbook: TidegateDown, TidegateStuck, "
        "TidegateNobodyLeads.",
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


def _unheard(metric: str) -> str:
    return f"{of(metric)} and on (namespace, workload) {of('tidegate_outlook', code='~' + TO_LOOK_AT)}"


def _only(metric: str, reasons: str) -> str:
    return f"{of(metric)} and on (namespace, workload) {of('tidegate_reason', reason=reasons)}"


def _capped() -> Panel:
    return rows(
        "Capped at the maximum",
        "More replicas are needed than the maximum allows, and requests queue. `asked` is what the largest objective "
        "asks for. Raise the maximum, or the work that a replica should carry, if it can. Replicas without a node: a "
        "higher maximum does not help. Runbook: TidegateCapped.",
        [
            Query(_only("tidegate_demand_replicas", "capped"), "asked"),
            Query(_only("tidegate_replicas", "capped"), "maximum"),
            Query(_only("tidegate_requests_waiting", "capped"), "waiting"),
            Query(_only("tidegate_replicas_pending", "capped"), "without a node"),
        ],
        [
            *NAME,
            Column("asked", decimals=1),
            Column("maximum"),
            Column("waiting"),
            Column("without a node", steps=[Step(1, RED)]),
        ],
        sort="asked",
        height=LIST_HEIGHT,
    )


def _held() -> Panel:
    return rows(
        "Held, unknown, or with silent sources",
        "Readings are missing. A held answer stands for `freshness.hold` (5 minutes by default, orange from 2) and can "
        "rise meanwhile; then it is an error, and the row has no `replicas`. See which pages fail on the workload's "
        "board. Incomplete: a response lacks a series or has it wrong; nothing is taken away. Runbook: "
        "TidegateDecisionHeld, TidegateDecisionUnknown, TidegateSleeperBlind, TidegateSourceStale, "
        "TidegateReadingsIncomplete.",
        [
            Query(of("tidegate_reason", "reason", reason="~held|incomplete|unknown")),
            Query(of("tidegate_held_seconds"), "held for"),
            Query(f"{of('tidegate_stale_sources')} > 0", "silent sources"),
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


def _no_waker() -> Panel:
    return rows(
        "Idle, and nothing would wake it",
        "They have nothing to do and keep a replica, because nothing that lives at zero would show the next request. "
        "Each row is GPUs held for nothing: give it a gateway (docs/reference/sources.md). With `replicas` 0 requests "
        "may be "
        "lost now: scale it to one by hand. Runbook: TidegateCannotWake.",
        [
            Query(_only("tidegate_idle_seconds", "no_waker"), "idle for"),
            Query(_only("tidegate_gpus_held", "no_waker"), "GPUs"),
            Query(_only("tidegate_replicas", "no_waker"), "replicas"),
        ],
        [*NAME, Column("idle for", unit="s"), Column("GPUs"), Column("replicas")],
        sort="GPUs",
        height=LIST_HEIGHT,
    )


def _nobody_acts() -> Panel:
    return rows(
        "Answers that nobody follows",
        "Tidegate decides, and nothing is done with it: no scaler or no HPA names the workload, two do, its HPA scales "
        "by something else or says that it cannot. `tidegate explain` says which, and `tidegate check` what to "
        "change.",
        [
            Query(of("tidegate_outlook", "code", code=f"~{TO_LOOK_AT}")),
            Query(_unheard("tidegate_replicas"), "wanted"),
            Query(_unheard("tidegate_replicas_wanted_by_cluster"), "cluster"),
        ],
        [*NAME, Column("code"), Column("wanted"), Column("cluster")],
        height=LIST_HEIGHT,
    )


def all_workloads() -> Panel:
    return rows(
        "Workloads",
        "Every workload with its reason and its numbers. `told` is what KEDA and the HPA hear, `cluster` what the "
        "cluster was told to run: apart for more than a minute or two, see the workload's board for what holds the "
        "HPA. An empty cell is not known; it is no zero.",
        [
            Query(of("tidegate_reason", "reason")),
            Query(of("tidegate_replicas"), "wanted"),
            Query(of("tidegate_replicas_told"), "told"),
            Query(of("tidegate_replicas_wanted_by_cluster"), "cluster"),
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
            Column("told"),
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
