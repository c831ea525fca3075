"""Builds the board Overview: GPUs by state, and the workloads that need attention.

Worked example: "At the maximum, and more is needed" is usually empty; a click on one of its rows opens the workload's
board.
"""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from ..board import OVERVIEW, Section, board, datasource, variable
from ..panels import Absence, Column, Panel, Query, Step, graph, heatmap, rows, stat_of
from ..queries import (
    AMBER,
    BLUE,
    GREEN,
    NAVY,
    ORANGE,
    PALE_BLUE,
    PURPLE,
    REASONS,
    RED,
    STATES,
    TEAL,
    fleet,
    increase_of,
    of,
)
from .money import fleet_money, money_lists
from .overview_lists import NAME, all_workloads, needs_attention

HOURS = " / 3600"
# Every workload acts.
NOT_OBSERVED = Absence("not configured", f"sum({of('tidegate_observed')}) == 0")


def build() -> model.Dashboard:
    return board(
        OVERVIEW,
        "Tidegate / Overview",
        "GPUs of all workloads by state, savings at zero, and workloads that need attention.",
        [
            datasource(),
            variable(
                "namespace",
                "Namespace",
                "label_values(tidegate_reason, namespace)",
                several=True,
                description="Namespace of workloads, not of Tidegate (docs/how-to/dashboards.md, honor_labels).",
            ),
        ],
        [
            Section("Now", _now()),
            Section("Money, in the currency of the prices", fleet_money()),
            Section("Over time", _over_time()),
            Section("Needs attention", needs_attention()),
            Section("All workloads", [all_workloads()]),
            Section("Money by workload, namespace and team", money_lists()),
            Section("Cost and savings of zero", _zero()),
            Section("Observed workloads", _observed(), collapsed=True),
        ],
    )


def _gpus(state: str) -> str:
    return fleet("tidegate_workload_gpus", state=state)


def _now() -> list[Panel]:
    return [
        stat_of(
            "GPUs serving",
            "GPUs of workloads that serve requests. This is what GPUs are for: nothing to do.",
            "short",
            Query(_gpus("serving")),
            below=GREEN,
        ),
        stat_of(
            "GPUs idle, kept warm",
            "GPUs of idle workloads that are kept for the next request. Much for long: let Tidegate learn the "
            "keep-warm time (docs/explanation/estimators.md), or look for workloads with a minimum above 0.",
            "short",
            Query(_gpus("idle_warm")),
            below=AMBER,
        ),
        stat_of(
            "GPUs loading or pending",
            "GPUs of replicas that load a model or wait for a node. It falls within a cold start. If not, look at the "
            "pods: no node has capacity, or an image or a model cannot be loaded.",
            "short",
            Query(_gpus("~loading|pending")),
            below=BLUE,
        ),
        stat_of(
            "GPUs asleep",
            "GPUs that workloads at zero would hold at their minimum, at least one replica each. Other workloads can "
            "use them. Falling without load: something wakes workloads; see wakes below.",
            "short",
            Query(_gpus("asleep")),
            below=NAVY,
        ),
        stat_of(
            "GPU-hours saved at zero",
            "GPU-hours saved by workloads at zero, over the board's time range. Compare it with the wakes below, "
            "which delay requests.",
            "h",
            Query(f"sum({increase_of('tidegate_workload_gpu_seconds_total', '$__range', state='asleep')}){HOURS}"),
            below=NAVY,
            decimals=1,
        ),
        stat_of(
            "Workloads without a decision",
            "Workloads with unknown demand: KEDA and the HPA get an error and keep the present replicas, so growing "
            "load is not served. One is too many. Runbook: TidegateDecisionUnknown.",
            "short",
            # Without any active workload the count has no value: 0 * count gives it a zero.
            Query(
                f"count({of('tidegate_observed')})"
                f" - (count({of('tidegate_active')}) or 0 * count({of('tidegate_observed')}))"
            ),
            [Step(1, RED)],
            below=GREEN,
        ),
    ]


def _over_time() -> list[Panel]:
    return [
        heatmap(
            "GPU activity of the fleet",
            "Mean engine activity of each workload, of the 50 with the most GPUs. A row that stays amber holds GPUs "
            "without work. No cell: the workload sleeps, or nothing measures its GPUs.",
            "percentunit",
            Query(
                f"{of('tidegate_workload_gpu_engine_active_ratio')} and on (namespace, workload)"
                f" topk(50, {fleet('tidegate_workload_gpus', 'namespace', 'workload')})",
                "{{namespace}}/{{workload}}",
            ),
            [Step(0.05, PALE_BLUE), Step(0.3, TEAL), Step(0.6, GREEN)],
            below=AMBER,
        ),
        graph(
            "GPUs by state",
            "All GPUs of all workloads, by the state of the workload. Idle-warm is the cost of keep-warm; asleep is "
            "the saving of zero. A step of `unknown` is an outage of targets: see Tidegate itself.",
            "short",
            [Query(fleet("tidegate_workload_gpus", "state"), "{{state}}")],
            stacked=True,
            colours=STATES,
        ),
        graph(
            "Workloads by state",
            "Number of workloads in each state, averaged over a step of the graph. A workload that alternates between "
            "loading and asleep has too short a keep-warm time.",
            "short",
            [Query(fleet("tidegate_workload_state_seconds_total", "state", window="$__rate_interval"), "{{state}}")],
            stacked=True,
            colours=STATES,
        ),
        graph(
            "Workloads by reason",
            "Reason of each workload's decision. `capped`, `held`, `unknown` and `no_wake_source` are listed by name "
            "below; `frozen` and `scheduled` are overrides.",
            "short",
            [Query(f"count by (reason) ({of('tidegate_reason', 'reason')})", "{{reason}}")],
            stacked=True,
            colours={str(reason): colour for reason, colour in REASONS.items()},
        ),
        graph(
            "Requests",
            "Requests that wait and run in the engines, and that gateways hold at zero, of all workloads with known "
            "values. If `held` stays, a wake fails: look for workloads that load or are capped.",
            "short",
            [
                Query(f"sum({of('tidegate_requests_waiting')})", "waiting"),
                Query(f"sum({of('tidegate_requests_running')})", "running"),
                Query(f"sum({of('tidegate_requests_held')})", "held"),
            ],
            colours={"waiting": ORANGE, "running": GREEN, "held": PURPLE},
        ),
    ]


def _zero() -> list[Panel]:
    return [
        graph(
            "Wakes and sleeps per hour",
            "Wakes and sleeps of workloads within the last hour. Many wakes of few workloads: their keep-warm time is "
            "shorter than the gaps of their load. Runbook: TidegateFlapping.",
            "short",
            [
                Query(f"sum({increase_of('tidegate_scale_ups_from_zero_total', '1h')})", "wakes"),
                Query(f"sum({increase_of('tidegate_scale_downs_to_zero_total', '1h')})", "sleeps"),
            ],
            colours={"wakes": GREEN, "sleeps": NAVY},
            decimals=1,
        ),
        graph(
            "Longest cold starts",
            "90 % of the starts take at most this long, for the ten slowest workloads. Above 5 minutes (dashed) most "
            "clients time out: load the model from a local disk, or keep that workload warm.",
            "s",
            [Query(f"topk(10, {of('tidegate_cold_start_seconds', quantile='0.9')})", "{{namespace}}/{{workload}}")],
            above=[Step(300, RED)],
        ),
        rows(
            "Saved by the learned keep-warm time",
            "Hours of one replica per day that the learned keep-warm time saves against the configured constant, and "
            "the same in money including the cost of waiting. Below 0 it holds GPUs longer, so that requests wait "
            "less. To change the balance, set the cost of waiting in `prices` (docs/explanation/estimators.md).",
            [
                Query(f"{of('tidegate_keep_warm_saved_gpu_seconds_per_day')}{HOURS}", "replica-hours a day"),
                Query(of("tidegate_keep_warm_saved_money_per_day"), "money a day"),
                Query(of("tidegate_keep_warm_seconds"), "kept warm for"),
            ],
            [
                *NAME,
                Column("replica-hours a day", decimals=2),
                Column("money a day", decimals=2),
                Column("kept warm for", unit="s"),
            ],
            sort="replica-hours a day",
        ),
        graph(
            "GPU-hours per hour, by state",
            "GPU time of each state, as the average number of GPUs over a step of the graph: its area is GPU-hours. "
            "Reduce what is idle for longer than a night.",
            "short",
            [Query(fleet("tidegate_workload_gpu_seconds_total", "state", window="$__rate_interval"), "{{state}}")],
            stacked=True,
            colours=STATES,
        ),
    ]


def _saved(metric: str) -> str:
    return f"sum({increase_of(metric, '$__range')}){HOURS}"


def _observed() -> list[Panel]:
    return [
        stat_of(
            "GPU-hours it would have saved",
            "What observed workloads ran beyond Tidegate's decisions, over the board's time range. Set `mode: act` "
            "(docs/how-to/observe-first.md) if much is saved and few requests wait.",
            "h",
            Query(_saved("tidegate_shadow_gpu_seconds_saved_total")),
            absence=NOT_OBSERVED,
            below=GREEN,
            decimals=1,
            width=6,
        ),
        stat_of(
            "GPU-hours it would have added",
            "What Tidegate would have run beyond the present replicas. It is the price of the waiting requests beside "
            "it.",
            "h",
            Query(_saved("tidegate_shadow_gpu_seconds_added_total")),
            absence=NOT_OBSERVED,
            below=AMBER,
            decimals=1,
            width=6,
        ),
        stat_of(
            "Request-hours that waited",
            "Time that requests waited while Tidegate wanted more replicas than there were, over the board's time "
            "range: the delay of the present scaler.",
            "h",
            Query(_saved("tidegate_shadow_queue_seconds_total")),
            absence=NOT_OBSERVED,
            below=ORANGE,
            decimals=2,
            width=6,
        ),
        stat_of(
            "Observed workloads",
            "Workloads with decisions but without effect: KEDA and the HPA get an error for them. Decide after some "
            "weeks whether to act.",
            "short",
            Query(f"sum({of('tidegate_observed')})"),
            width=6,
        ),
        rows(
            "Observed workloads by name",
            "Over the board's time range. Much saved and no waiting requests: set `mode: act`. Much time with more "
            "replicas wanted: the present scaler is late, see the workload's board.",
            [
                Query(
                    f"{increase_of('tidegate_shadow_gpu_seconds_saved_total', '$__range')}{HOURS}", "GPU-hours saved"
                ),
                Query(
                    f"{increase_of('tidegate_shadow_gpu_seconds_added_total', '$__range')}{HOURS}", "GPU-hours added"
                ),
                Query(increase_of("tidegate_shadow_queue_seconds_total", "$__range"), "requests waited for"),
                Query(_disagreed("more"), "wanted more"),
                Query(_disagreed("fewer"), "wanted fewer"),
                Query(increase_of("tidegate_shadow_seconds_total", "$__range"), "observed for"),
            ],
            [
                *NAME,
                Column("GPU-hours saved", decimals=2),
                Column("GPU-hours added", decimals=2),
                Column("requests waited for", unit="s"),
                Column("wanted more", unit="s"),
                Column("wanted fewer", unit="s"),
                Column("observed for", unit="s"),
            ],
            width=24,
            sort="GPU-hours saved",
        ),
    ]


def _disagreed(direction: str) -> str:
    return increase_of("tidegate_shadow_disagreement_seconds_total", "$__range", direction=direction)
