"""Builds the panels of GPUs, zero, targets and observation for the board Workload.

Worked example: `zero()` has the idle time against the keep-warm time: at their intersection the workload goes to zero.
"""

from __future__ import annotations

from ..panels import ROW_HEIGHT, Absence, Column, Panel, Query, Step, graph, rows, stat_of, timeline
from ..queries import (
    AMBER,
    BLUE,
    GREEN,
    NAVY,
    ONE,
    ORANGE,
    PROVENANCE_NAMES,
    PROVENANCES,
    PURPLE,
    RED,
    STATES,
    TEAL,
    coded,
    increase_of,
    of_one,
    rate_of,
)

INTERVAL = "$__rate_interval"
# The label `owner` of a scrape.
WORKLOAD_TARGETS = 'owner="$namespace/$workload"'


def gpus() -> list[Panel]:
    activity = (
        f"{of_one('tidegate_workload_gpu_engine_active_ratio')}"
        " * on (namespace, workload) group_left (provenance) "
        f"{of_one('tidegate_workload_gpu_provenance', 'provenance')}"
    )
    return [
        graph(
            "GPU activity over time",
            "Mean engine activity of the GPUs that the workload uses alone, and the ceiling of MIG instances. With "
            "`engine` it may size the workload; with `utilisation` or `process` it only proves idleness "
            "(docs/explanation/gpus.md).",
            "percentunit",
            [
                Query(activity, "{{provenance}}"),
                Query(of_one("tidegate_workload_gpu_engine_ceiling_ratio"), "ceiling of MIG"),
            ],
            top=1.0,
            colours=PROVENANCES | {"ceiling of MIG": RED},
            dashed=["ceiling of MIG"],
        ),
        timeline(
            "How GPU activity is measured",
            "`engine`: profiling fields of DCGM. `utilisation`: only GPU_UTIL: let the exporter collect "
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE. `process`: shared, and measured by process. `none`: only requests count.",
            [Query(coded("tidegate_workload_gpu_provenance", "provenance", list(PROVENANCES), ONE), "known by")],
            PROVENANCE_NAMES,
            width=12,
            height=8,
        ),
        graph(
            "GPUs by state",
            "GPUs of this workload by its state. Amber is the cost of keep-warm.",
            "short",
            [Query(of_one("tidegate_workload_gpus", "state"), "{{state}}")],
            stacked=True,
            colours=STATES,
            width=8,
        ),
        graph(
            "GPUs requested, recognized and lost",
            "GPUs that the running pods request, those that a page attributes to them alone, and those that are "
            "silent after a fatal Xid. Fewer attributed than held: GPUs are shared, or an exporter does not label "
            "them. Lost: drain the node. Runbook: TidegateGpuLost.",
            "short",
            [
                Query(of_one("tidegate_gpus_held"), "held"),
                Query(of_one("tidegate_gpus_attributed"), "recognized"),
                Query(of_one("tidegate_workload_gpus_lost"), "lost"),
            ],
            colours={"held": BLUE, "recognized": GREEN, "lost": RED},
            width=8,
        ),
        graph(
            "GPU memory held",
            "Memory that the pods hold, busy or not. It is never a reason to scale; compare it with the activity to "
            "find idle replicas.",
            "bytes",
            [Query(of_one("tidegate_workload_gpu_memory_held_bytes"), "held")],
            colours={"held": PURPLE},
            width=8,
        ),
    ]


def zero() -> list[Panel]:
    return [
        graph(
            "Idle time and keep-warm time",
            "Idle time against the time after which the workload goes to zero. Above the line and not asleep: it has "
            "a minimum above 0, or no wake source. Runbook: TidegateCannotWake.",
            "s",
            [
                Query(of_one("tidegate_idle_seconds"), "idle for"),
                Query(of_one("tidegate_keep_warm_seconds"), "kept warm for"),
            ],
            colours={"idle for": NAVY, "kept warm for": AMBER},
            dashed=["kept warm for"],
        ),
        graph(
            "Cold starts",
            "Duration of a start, from the pod's creation to its first token: median (0.5) and 90 % (0.9) of further "
            "replicas, and of the first after zero, for which a request waits. Above 5 minutes (dashed) most clients "
            "time out.",
            "s",
            [
                Query(of_one("tidegate_cold_start_seconds", "quantile"), "{{quantile}}"),
                Query(of_one("tidegate_zero_start_seconds", "statistic"), "after zero, {{statistic}}"),
            ],
            colours={"0.5": TEAL, "0.9": ORANGE},
            above=[Step(300, RED)],
        ),
        graph(
            "Wakes and sleeps per hour",
            "Wakes and sleeps within the last hour. More than a few: keep it warm for longer than the gaps of its "
            "load, or let Tidegate learn that time.",
            "short",
            [
                Query(increase_of("tidegate_scale_ups_from_zero_total", "1h", where=ONE), "wakes"),
                Query(increase_of("tidegate_scale_downs_to_zero_total", "1h", where=ONE), "sleeps"),
            ],
            width=8,
            colours={"wakes": GREEN, "sleeps": NAVY},
            decimals=1,
        ),
        *_savings(),
    ]


def _savings() -> list[Panel]:
    return [
        stat_of(
            "Saved by learned keep-warm",
            "Hours of one replica per day that the learned keep-warm time saves against the constant. Below 0 it uses "
            "them, so that requests wait less.",
            "h",
            Query(f"{of_one('tidegate_keep_warm_saved_gpu_seconds_per_day')} / 3600"),
            absence=Absence("not estimated", of_one("tidegate_observed")),
            decimals=2,
            height=ROW_HEIGHT,
        ),
        stat_of(
            "Saved in money",
            "The same in money per day, with the cost of waiting for starts (`prices`). Below 0 for weeks: the "
            "constant is better, set `keep_warm` to it.",
            "short",
            Query(of_one("tidegate_keep_warm_saved_money_per_day")),
            absence=Absence("not estimated", of_one("tidegate_observed")),
            decimals=2,
            height=ROW_HEIGHT,
        ),
        stat_of(
            "Next predicted start",
            "Time of the next start before an expected request. `not predicted`: none is expected, which is usual.",
            "dateTimeFromNow",
            Query(f"{of_one('tidegate_prewarm_timestamp_seconds')} * 1000"),
            absence=Absence("not predicted", of_one("tidegate_observed")),
            height=ROW_HEIGHT,
        ),
        stat_of(
            "GPU-hours saved at zero",
            "GPU-hours that the workload saved at zero, over the board's time range. Compare it with the wakes beside "
            "it, which delay requests.",
            "h",
            Query(
                f"{increase_of('tidegate_workload_gpu_seconds_total', '$__range', where=ONE, state='asleep')} / 3600"
            ),
            below=NAVY,
            decimals=1,
            height=ROW_HEIGHT,
        ),
    ]


def trust() -> list[Panel]:
    return [
        graph(
            "Age of the readings",
            "Age of the oldest reading of the decision, and how long the decision has been held. Dashed: 5 minutes, "
            "after which a held decision becomes an error unless `freshness.hold` is configured otherwise. Runbook: "
            "TidegateDecisionHeld, TidegateWakeSourceStale.",
            "s",
            [Query(of_one("tidegate_reading_age_seconds"), "age"), Query(of_one("tidegate_held_seconds"), "held for")],
            width=8,
            colours={"age": TEAL, "held for": PURPLE},
            above=[Step(300, RED)],
        ),
        graph(
            "Targets that do not answer",
            "Number of its stale targets. Up to half of the pods, their values are imputed from the others. Runbook: "
            "TidegateTargetStale.",
            "short",
            [Query(of_one("tidegate_stale_targets"), "silent")],
            width=8,
            colours={"silent": RED},
        ),
        rows(
            "Its targets",
            "Each target of the workload: whether the last scrape succeeded, and its duration. 0: read it as Tidegate "
            "does, `tidegate read URL`. Tidegate itself has the reasons of failures.",
            [
                Query(f"min by (role, target) (tidegate_scrape_up{{{WORKLOAD_TARGETS}}})", "answers"),
                Query(f"max by (role, target) (tidegate_scrape_duration_seconds{{{WORKLOAD_TARGETS}}})", "took"),
            ],
            [
                Column("role"),
                Column("target"),
                Column("answers", steps=[Step(0, RED), Step(1, GREEN)]),
                Column("took", unit="s"),
            ],
            width=8,
        ),
    ]


def observed() -> list[Panel]:
    return [
        graph(
            "What it would have run",
            "The replicas of Tidegate's decisions against spec.replicas. Lower is saved, higher is added. Set `mode: "
            "act` if the result is good.",
            "short",
            [
                Query(of_one("tidegate_shadow_replicas"), "Tidegate would have"),
                Query(of_one("tidegate_spec_replicas"), "cluster"),
            ],
            colours={"Tidegate would have": GREEN, "cluster": BLUE},
        ),
        graph(
            "Share of time with another decision",
            "Share of time in which Tidegate wanted more, or fewer, replicas than there were. `more`: requests waited "
            "for a late scaler; `fewer`: GPUs were held idle.",
            "percentunit",
            [
                Query(
                    rate_of("tidegate_shadow_disagreement_seconds_total", INTERVAL, "direction", where=ONE),
                    "{{direction}}",
                )
            ],
            top=1.0,
            colours={"more": ORANGE, "fewer": AMBER},
        ),
        *(
            stat_of(
                title,
                description,
                "h",
                Query(f"{increase_of(metric, '$__range', where=ONE)} / 3600"),
                width=6,
                decimals=2,
                absence=Absence("not configured", f"{of_one('tidegate_observed')} == 0"),
            )
            for title, description, metric in (
                (
                    "GPU-hours it would have saved",
                    "What ran beyond Tidegate's decisions, over the board's time range. `mode: act` saves it.",
                    "tidegate_shadow_gpu_seconds_saved_total",
                ),
                (
                    "GPU-hours it would have added",
                    "What Tidegate would have run beyond the present replicas: the price of shorter waits.",
                    "tidegate_shadow_gpu_seconds_added_total",
                ),
                (
                    "Request-hours that waited",
                    "Time that requests waited while Tidegate wanted more replicas: the present scaler is late.",
                    "tidegate_shadow_queue_seconds_total",
                ),
                (
                    "Hours observed",
                    "Duration of the observation. Decide after a day at least, better a week.",
                    "tidegate_shadow_seconds_total",
                ),
            )
        ),
    ]
