"""Tidegate itself: does it see, does it decide, is it heard, and what does it take.

Worked example: a workload is held. "Failures by reason" shows `timeout` since 14:05, "Targets that do not answer" names
the page, and "Kubernetes" shows that nothing else is wrong.
"""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from ..board import ITSELF, TO_WORKLOAD, Section, board, datasource, variable
from ..panels import Column, Panel, Query, Step, graph, rows, stat_of
from ..words import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, TEAL, YES_NO
from .itself_outside import calls, kubernetes, peers, process
from .itself_words import OWN, each, quantile, rate


def made() -> model.Dashboard:
    return board(
        ITSELF,
        "Tidegate / Itself",
        "Whether Tidegate sees, decides and is heard, and what it takes.",
        [
            datasource(),
            variable(
                "job",
                "Job",
                "label_values(tidegate_board_version, job)",
                several=True,
                says="The scrape job: one for each installation.",
            ),
            variable(
                "instance",
                "Replica",
                'label_values(tidegate_board_version{job=~"$job"}, instance)',
                several=True,
                says="The pods of Tidegate.",
            ),
        ],
        [
            Section("Now", _now()),
            Section("Does it decide?", _ticks()),
            Section("Does it see?", _scrapes()),
            Section("Is what it sees fresh?", _staleness()),
            Section("Is it heard?", calls()),
            Section("Kubernetes and configuration", kubernetes()),
            Section("Replicas and memory of the past", peers()),
            Section("What it takes", process()),
        ],
        since="now-3h",
    )


def _now() -> list[Panel]:
    return [
        stat_of(
            "Replicas seen",
            "Pods of Tidegate that this Prometheus scrapes. `unknown`: none, see docs/how-to/runbooks.md. Runbook: "
            "TidegateDown.",
            "short",
            Query(f"count(tidegate_board_version{{{OWN}}})"),
        ),
        stat_of(
            "Leaders",
            "Pods whose answers the others repeat. 0 with several replicas: each answers for itself. More than 1 for "
            "longer than a scrape: two installations share a job. Runbook: TidegateNobodyLeads.",
            "short",
            Query(f"sum(tidegate_leader{{{OWN}}})"),
            [Step(2, RED)],
        ),
        stat_of(
            "Age of the Board",
            "Time since the last sweep over all workloads, of the replica that is best off. A second is right; from 30 "
            "on nothing is decided. Runbook: TidegateStuck.",
            "s",
            Query(f"min(tidegate_board_age_seconds{{{OWN}}})"),
            [Step(10, ORANGE), Step(30, RED)],
            below=GREEN,
            decimals=1,
        ),
        stat_of(
            "Configuration taken",
            "Whether every replica took the last configuration that it read. `no`: the one before is in force, and a "
            "restart would fail. `tidegate check FILE` names each error. Runbook: TidegateConfigRejected.",
            "none",
            Query(f"min(tidegate_config_last_reload_successful{{{OWN}}})"),
            names=YES_NO,
        ),
        stat_of(
            "Targets that do not answer",
            "Pages whose last scrape brought nothing. They are named below, with why.",
            "short",
            Query(
                f"count(max by (role, owner, target) (tidegate_scrape_up{{{OWN}}}) == 0)"
                f" or 0 * count(tidegate_scrape_up{{{OWN}}})"
            ),
            [Step(1, ORANGE)],
            below=GREEN,
        ),
        stat_of(
            "Workloads",
            "Workloads that it decides, those without an answer and those only observed among them. Fewer than you "
            "have: `tidegate check` on their objects says why.",
            "short",
            Query(f"count(group by (namespace, workload) (tidegate_observed{{{OWN}}}))"),
        ),
    ]


def _ticks() -> list[Panel]:
    return [
        graph(
            "How long a sweep takes",
            "Half of the sweeps, and 99 of 100. A sweep has a second (dashed): beyond it, sweeps are left out and ages "
            "grow. Give it a processor, or spread the workloads over two installations.",
            "s",
            [
                Query(quantile(0.5, "tidegate_tick_duration_seconds"), "p50"),
                Query(quantile(0.99, "tidegate_tick_duration_seconds"), "p99"),
            ],
            width=8,
            colours={"p50": TEAL, "p99": ORANGE},
            above=[Step(1, RED)],
        ),
        graph(
            "Sweeps and failed sweeps",
            "Sweeps per second and replica: 1, unless `tick` says otherwise. A failed one leaves the last Board "
            "standing and logs why: please report it. Runbook: TidegateStuck.",
            "ops",
            [
                Query(rate("tidegate_tick_duration_seconds_count", "instance"), "{{instance}}"),
                Query(rate("tidegate_ticks_failed_total", "instance"), "{{instance}} failed"),
            ],
            width=8,
        ),
        graph(
            "Age of the Board by replica",
            "Time since each replica's last sweep; of a follower, of its own. Dashed: 30 seconds, when the alert "
            "comes. Rising on all: restart it, which is safe. Runbook: TidegateStuck.",
            "s",
            [Query(each("tidegate_board_age_seconds"), "{{instance}}")],
            width=8,
            above=[Step(30, RED)],
        ),
    ]


def _scrapes() -> list[Panel]:
    labels = "role, owner, target"
    return [
        graph(
            "Scrapes by role",
            "Pages read per second: of pods, gateways and GPUs. A step down without pods that went: something is not "
            "discovered any more, see Kubernetes.",
            "ops",
            [Query(rate("tidegate_scrapes_total", "role"), "{{role}}")],
            width=8,
            colours={"pods": BLUE, "gateway": PURPLE, "gpus": GREEN},
        ),
        graph(
            "Failures by reason",
            "Scrapes that brought nothing. `refused`: nobody listens there; `timeout`: it hangs, or a NetworkPolicy; "
            "`status`: a wrong path or no right; `unreadable`: another page than its kind says. Runbook: "
            "TidegateSourceStale.",
            "ops",
            [Query(rate("tidegate_scrape_failures_total", "reason"), "{{reason}}")],
            width=8,
        ),
        graph(
            "Slowest targets",
            "How long the last scrape of the ten slowest pages took. Near `scrape.timeout` they will begin to fail: "
            "the server behind is overloaded, or its page has grown.",
            "s",
            [
                Query(
                    f"topk(10, max by ({labels}) (tidegate_scrape_duration_seconds{{{OWN}}}))",
                    "{{owner}} {{target}}",
                )
            ],
            width=8,
        ),
        rows(
            "Which do not answer, and why",
            "Pages whose last scrape brought nothing, and what went wrong lately. Read one as Tidegate does: `tidegate "
            "read URL`. Runbook: TidegateSourceStale, TidegateSleeperBlind.",
            [
                Query(f"max by ({labels}) (tidegate_scrape_up{{{OWN}}}) == 0"),
                Query(
                    f"max by ({labels}, reason) (increase(tidegate_scrape_failures_total{{{OWN}}}[15m])) > 0"
                    f" and on ({labels}) max by ({labels}) (tidegate_scrape_up{{{OWN}}}) == 0",
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
            "Lines that were not believed",
            "Lines of pages per second that are no sample, or values that mark themselves as none (DCGM's blanks). A "
            "steady few are usual with DCGM; many: `tidegate read URL` lists them with why.",
            "ops",
            [Query(rate("tidegate_scrape_dropped_lines_total", "role", "owner"), "{{role}} {{owner}}")],
        ),
    ]


def _staleness() -> list[Panel]:
    by = "namespace, workload"
    return [
        graph(
            "Oldest readings",
            "Age of the oldest reading behind an answer, of the ten workloads where it is highest. Beyond three scrape "
            "intervals the answer is held; at `freshness.hold` more (5 minutes) it is an error. Runbook: "
            "TidegateDecisionHeld.",
            "s",
            [
                Query(
                    f"topk(10, max by ({by}) (tidegate_reading_age_seconds{{{OWN}}}))",
                    "{{namespace}}/{{workload}}",
                )
            ],
            width=8,
        ),
        graph(
            "Held and unknown",
            "How many workloads are held, or without an answer. All at once: Tidegate's own network, or Kubernetes; "
            "one by one: their pages. Runbook: TidegateDecisionHeld, TidegateDecisionUnknown.",
            "short",
            [
                Query(
                    f"count by (reason) (group by ({by}, reason) "
                    f'(tidegate_reason{{{OWN},reason=~"held|incomplete|unknown"}}))',
                    "{{reason}}",
                )
            ],
            width=8,
            stacked=True,
            colours={"held": PURPLE, "unknown": GREY},
        ),
        rows(
            "Held longest",
            "Workloads by how long their answer has been held. From 5 minutes on (red) it is an error, unless "
            "`freshness.hold` says otherwise.",
            [Query(f"topk(10, max by ({by}) (tidegate_held_seconds{{{OWN}}}))", "held for")],
            [
                Column("namespace"),
                Column("workload", link=("Its board", TO_WORKLOAD)),
                Column("held for", unit="s", steps=[Step(120, ORANGE), Step(300, RED)]),
            ],
            width=8,
            sort="held for",
        ),
    ]
