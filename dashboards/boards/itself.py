"""Builds the board Itself: ticks, scrapes, clients, Kubernetes, replicas and resources of Tidegate.

Worked example: a workload is held. "Failures by reason" shows `timeout` since 14:05, "Failed targets and reasons" has
the target, and "Kubernetes" shows no further problem.
"""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from ..board import ITSELF, MAINTAINERS_TAG, TO_WORKLOAD, Section, board, datasource, variable
from ..panels import GREY, Absence, Column, Panel, Query, Step, graph, rows, stat_of
from ..queries import BLUE, GREEN, ORANGE, PURPLE, RED, SELF, TEAL, YES_NO, self_each, self_quantile, self_rate
from .itself_clients import calls, kubernetes, peers, process


def build() -> model.Dashboard:
    return board(
        ITSELF,
        "Tidegate for maintainers / Itself",
        "Ticks, scrapes, clients, Kubernetes, replicas and resources of Tidegate.",
        [
            datasource(),
            variable(
                "job",
                "Job",
                "label_values(tidegate_board_version, job)",
                several=True,
                description="The scrape job: one for each installation.",
            ),
            variable(
                "instance",
                "Replica",
                'label_values(tidegate_board_version{job=~"$job"}, instance)',
                several=True,
                description="The pods of Tidegate.",
            ),
        ],
        [
            Section("Now", _now()),
            Section("Decisions", _ticks()),
            Section("Scrapes", _scrapes()),
            Section("Freshness", _staleness()),
            Section("Clients", calls()),
            Section("Kubernetes and configuration", kubernetes()),
            Section("Replicas and checkpoints", peers()),
            Section("Resources", process()),
        ],
        since="now-3h",
        tag=MAINTAINERS_TAG,
    )


def _now() -> list[Panel]:
    return [
        stat_of(
            "Replicas scraped",
            "Pods of Tidegate that this Prometheus scrapes. `unknown`: none, see docs/how-to/runbooks.md. Runbook: "
            "TidegateDown.",
            "short",
            Query(f"count(tidegate_board_version{{{SELF}}})"),
        ),
        stat_of(
            "Leaders",
            "Leading replicas: the others publish their Board. 0 with several replicas: each publishes its own "
            "decisions. More than 1 for longer than a scrape: two installations share a job. Runbook: "
            "TidegateNoLeader.",
            "short",
            Query(f"sum(tidegate_leader{{{SELF}}})"),
            [Step(2, RED)],
            absence=Absence("not configured", f"count(tidegate_board_version{{{SELF}}})"),
        ),
        stat_of(
            "Time since the last decision",
            "Time since the last tick, of the most recent replica. About a second is normal; from 30 on no decisions "
            "are made. Runbook: TidegateStuck.",
            "s",
            Query(f"min(tidegate_board_age_seconds{{{SELF}}})"),
            [Step(10, ORANGE), Step(30, RED)],
            below=GREEN,
            decimals=1,
        ),
        stat_of(
            "Configuration loaded",
            "Whether every replica loaded its last configuration. `no`: the previous one is active, and a restart "
            "would fail. `tidegate check FILE` prints each error. Runbook: TidegateConfigRejected.",
            "none",
            Query(f"min(tidegate_config_last_reload_successful{{{SELF}}})"),
            names=YES_NO,
        ),
        stat_of(
            "Failed targets",
            "Targets with a failed last scrape. They are listed below with the reason.",
            "short",
            Query(
                f"count(max by (role, owner, target) (tidegate_scrape_up{{{SELF}}}) == 0)"
                f" or 0 * count(tidegate_scrape_up{{{SELF}}})"
            ),
            [Step(1, ORANGE)],
            below=GREEN,
        ),
        stat_of(
            "Workloads",
            "Decided workloads, with those without a decision and those only observed. Fewer than expected: `tidegate "
            "check` on their objects shows why.",
            "short",
            Query(f"count(group by (namespace, workload) (tidegate_observed{{{SELF}}}))"),
        ),
    ]


def _ticks() -> list[Panel]:
    return [
        graph(
            "Time that a decision takes",
            "Half of the ticks, and 99 of 100. Above a second (dashed), ticks are skipped and ages grow. Give it more "
            "CPU, or split the workloads into two installations.",
            "s",
            [
                Query(self_quantile(0.5, "tidegate_tick_duration_seconds"), "p50"),
                Query(self_quantile(0.99, "tidegate_tick_duration_seconds"), "p99"),
            ],
            width=8,
            colours={"p50": TEAL, "p99": ORANGE},
            above=[Step(1, RED)],
        ),
        graph(
            "Decisions and failed ones",
            "Ticks per second and replica: 1, unless `tick` is configured otherwise. A failed one keeps the last "
            "Board and logs the error: please report it. Runbook: TidegateStuck.",
            "ops",
            [
                Query(self_rate("tidegate_tick_duration_seconds_count", "instance"), "{{instance}}"),
                Query(self_rate("tidegate_ticks_failed_total", "instance"), "{{instance}} failed"),
            ],
            width=8,
        ),
        graph(
            "Time since the last decision, by replica",
            "Time since each replica's last tick; of a follower, its own. Dashed: 30 seconds, when the alert fires. "
            "Rising on all: restart them, which is safe. Runbook: TidegateStuck.",
            "s",
            [Query(self_each("tidegate_board_age_seconds"), "{{instance}}")],
            width=8,
            above=[Step(30, RED)],
        ),
    ]


def _scrapes() -> list[Panel]:
    labels = "role, owner, target"
    return [
        graph(
            "Scrapes by role",
            "Scrapes per second of pods, gateways and GPUs, and those that are late or skipped. A drop without removed "
            "pods: targets are no longer discovered, see Kubernetes. Runbook: TidegateOverloaded.",
            "ops",
            [
                Query(self_rate("tidegate_scrapes_total", "role"), "{{role}}"),
                Query(self_rate("tidegate_scrapes_late_total", "job"), "late"),
                Query(self_rate("tidegate_scrapes_skipped_total", "reason"), "skipped: {{reason}}"),
            ],
            width=8,
            colours={"pods": BLUE, "gateway": PURPLE, "gpus": GREEN, "late": ORANGE},
        ),
        graph(
            "Failures by reason",
            "Failed scrapes. `refused`: the port is closed; `timeout`: the target hangs, or a NetworkPolicy blocks "
            "it; `status`: wrong path or no permission; `unreadable`: another kind of page. Runbook: "
            "TidegateTargetStale.",
            "ops",
            [Query(self_rate("tidegate_scrape_failures_total", "reason"), "{{reason}}")],
            width=8,
        ),
        graph(
            "Slowest targets",
            "Duration of the last scrape of the ten slowest targets. Near `scrape.timeout` they begin to fail: the "
            "server is overloaded, or its page has grown.",
            "s",
            [
                Query(
                    f"topk(10, max by ({labels}) (tidegate_scrape_duration_seconds{{{SELF}}}))", "{{owner}} {{target}}"
                )
            ],
            width=8,
        ),
        rows(
            "Failed targets and reasons",
            "Targets with a failed last scrape, and the recent reasons. Read one as Tidegate does: `tidegate read "
            "URL`. Runbook: TidegateTargetStale, TidegateWakeSourceStale.",
            [
                Query(f"max by ({labels}) (tidegate_scrape_up{{{SELF}}}) == 0"),
                Query(
                    f"max by ({labels}, reason) (increase(tidegate_scrape_failures_total{{{SELF}}}[15m])) > 0"
                    f" and on ({labels}) max by ({labels}) (tidegate_scrape_up{{{SELF}}}) == 0",
                    "failures in 15 min",
                ),
            ],
            [
                Column("role"),
                Column("owner"),
                Column("target"),
                Column("reason"),
                Column("failures in 15 min", decimals=0),
            ],
        ),
        graph(
            "Lines without a value",
            "Lines per second that are no sample, or are marked as having no value (DCGM's blanks). A few are normal "
            "with DCGM; if many: `tidegate read URL` lists them with reasons.",
            "ops",
            [Query(self_rate("tidegate_scrape_dropped_lines_total", "role", "owner"), "{{role}} {{owner}}")],
        ),
    ]


def _staleness() -> list[Panel]:
    by = "namespace, workload"
    return [
        graph(
            "Oldest readings",
            "Age of the oldest reading of a decision, of the ten workloads with the highest. After three scrape "
            "intervals the decision is held; `freshness.hold` later (5 minutes) it is an error. Runbook: "
            "TidegateDecisionHeld.",
            "s",
            [Query(f"topk(10, max by ({by}) (tidegate_reading_age_seconds{{{SELF}}}))", "{{namespace}}/{{workload}}")],
            width=8,
        ),
        graph(
            "Held and unknown",
            "Workloads with a held decision or none. All at once: Tidegate's network, or Kubernetes; single ones: "
            "their targets. Runbook: TidegateDecisionHeld, TidegateDecisionUnknown.",
            "short",
            [
                Query(
                    f"count by (reason) (group by ({by}, reason) "
                    f'(tidegate_reason{{{SELF},reason=~"held|incomplete|unknown"}}))',
                    "{{reason}}",
                )
            ],
            width=8,
            stacked=True,
            colours={"held": PURPLE, "unknown": GREY},
        ),
        rows(
            "Held longest",
            "Workloads by how long their decision has been held. From 5 minutes on (red) it is an error, unless "
            "`freshness.hold` is configured otherwise.",
            [Query(f"topk(10, max by ({by}) (tidegate_held_seconds{{{SELF}}}))", "held for")],
            [
                Column("namespace"),
                Column("workload", link=("Its board", TO_WORKLOAD)),
                Column("held for", unit="s", steps=[Step(120, ORANGE), Step(300, RED)]),
            ],
            width=8,
            sort="held for",
        ),
    ]
