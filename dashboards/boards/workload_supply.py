"""Workload, from the side of supply: its GPUs, its way to zero and back, its sources, and what acting would change.

Worked example: `zero()` has the time idle against the keep-warm time: where the lines meet it goes to sleep.
"""

from __future__ import annotations

from ..panels import ROW_HEIGHT, Column, Panel, Query, Step, graph, rows, stat_of, timeline
from ..words import (
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
# As `role`, `owner` and `target` of a scrape are: whose page it is.
OWN_PAGES = 'owner="$namespace/$workload"'


def gpus() -> list[Panel]:
    activity = (
        f"{of_one('tidegate_workload_gpu_engine_active_ratio')}"
        " * on (namespace, workload) group_left (provenance) "
        f"{of_one('tidegate_workload_gpu_provenance', 'provenance')}"
    )
    return [
        graph(
            "GPU activity, by how it is known",
            "Mean engine activity of its own GPUs, beside the most that MIG instances can reach. Known by `engine` it "
            "may size; by `utilisation` or `process` it only proves idleness; a shared device's number is nobody's "
            "share (docs/explanation/gpus.md).",
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
            "How its GPUs are seen",
            "`engine`: profiling fields of DCGM. `utilisation`: GPU_UTIL alone: have the exporter collect "
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE. `process`: shared, and measured by process. `none`: requests decide alone.",
            [
                Query(
                    coded("tidegate_workload_gpu_provenance", "provenance", list(PROVENANCES), ONE),
                    "known by",
                )
            ],
            PROVENANCE_NAMES,
            width=12,
            height=8,
        ),
        graph(
            "GPUs by what they do",
            "GPUs of this workload by its state. Amber is what keeping it warm costs.",
            "short",
            [Query(of_one("tidegate_workload_gpus", "state"), "{{state}}")],
            stacked=True,
            colours=STATES,
            width=8,
        ),
        graph(
            "GPUs held, seen and lost",
            "What its running pods asked for, what a page shows as wholly its own, and what fell silent after a fatal "
            "Xid. Seen below held: GPUs are shared, or an exporter does not label them. Lost: drain the node. Runbook: "
            "TidegateGpuLost.",
            "short",
            [
                Query(of_one("tidegate_gpus_held"), "held"),
                Query(of_one("tidegate_gpus_seen"), "seen"),
                Query(of_one("tidegate_workload_gpus_lost"), "lost"),
            ],
            colours={"held": BLUE, "seen": GREEN, "lost": RED},
            width=8,
        ),
        graph(
            "GPU memory held",
            "Residency: what its pods hold, busy or not. It is never a reason to scale; compare it with the activity "
            "to see what an idle replica keeps from others.",
            "bytes",
            [Query(of_one("tidegate_workload_gpu_memory_held_bytes"), "held")],
            colours={"held": PURPLE},
            width=8,
        ),
    ]


def zero() -> list[Panel]:
    return [
        graph(
            "Idle, and how long it is kept warm",
            "How long nothing has been to be done, against the time after which it goes to zero. Over the line and not "
            "asleep: it has a minimum above 0, or nothing would wake it. Runbook: TidegateCannotWake.",
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
            "How long a start takes, from the pod's creation to its first token: as a rule (0.5) and nine of ten "
            "(0.9). It is what the first request after zero waits. Above 5 minutes (dashed) most clients have given "
            "up.",
            "s",
            [Query(of_one("tidegate_cold_start_seconds", "quantile"), "{{quantile}}")],
            colours={"0.5": TEAL, "0.9": ORANGE},
            above=[Step(300, RED)],
        ),
        graph(
            "Wakes and sleeps per hour",
            "How often it came back from zero and went there, within the hour before. More than a few: keep it warm "
            "for longer than the gaps of its load, or let that be learned.",
            "short",
            [
                Query(increase_of("tidegate_wakes_total", "1h", where=ONE), "wakes"),
                Query(increase_of("tidegate_sleeps_total", "1h", where=ONE), "sleeps"),
            ],
            width=8,
            colours={"wakes": GREEN, "sleeps": NAVY},
            decimals=1,
        ),
        stat_of(
            "Learning keep-warm saves a day",
            "Hours of one replica that the learned keep-warm time saves a day against the constant. Below 0 it spends "
            "them, so that people wait less.",
            "h",
            Query(f"{of_one('tidegate_keep_warm_saved_gpu_seconds_per_day')} / 3600"),
            decimals=2,
            height=ROW_HEIGHT,
        ),
        stat_of(
            "And in money a day",
            "The same with what waiting for starts costs, in the money of `prices`. Below 0 for weeks: the constant "
            "was better, set `keep_warm` to it.",
            "short",
            Query(of_one("tidegate_keep_warm_saved_money_per_day")),
            decimals=2,
            height=ROW_HEIGHT,
        ),
        stat_of(
            "Starts in advance",
            "When it starts again before the next request is expected. `unknown`: no request is foreseen, which is the "
            "rule.",
            "dateTimeFromNow",
            Query(f"{of_one('tidegate_starts_again_timestamp_seconds')} * 1000"),
            height=ROW_HEIGHT,
        ),
        stat_of(
            "GPU-hours asleep",
            "GPU-hours that it did not hold because it was at zero, over the time that the board shows. Hold it "
            "against what the wakes beside it made people wait.",
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
            "Age of readings, and holding",
            "How old the oldest reading behind the answer is, and how long the answer has been held for want of fresh "
            "ones. Dashed: 5 minutes, where a held answer becomes an error unless `freshness.hold` says otherwise. "
            "Runbook: TidegateDecisionHeld, TidegateSleeperBlind.",
            "s",
            [
                Query(of_one("tidegate_reading_age_seconds"), "age"),
                Query(of_one("tidegate_held_seconds"), "held for"),
            ],
            width=8,
            colours={"age": TEAL, "held for": PURPLE},
            above=[Step(300, RED)],
        ),
        graph(
            "Sources that are too old to believe",
            "How many of its pages are silent. Of half of the pods it is borne: the others are taken to be like them. "
            "Runbook: TidegateSourceStale.",
            "short",
            [Query(of_one("tidegate_stale_sources"), "silent")],
            width=8,
            colours={"silent": RED},
        ),
        rows(
            "Its pages",
            "Each page that Tidegate asks for it: whether the last answer was a page, and how long it took. 0: read it "
            "as Tidegate does, `tidegate read URL`. Tidegate itself has the reasons of failures.",
            [
                Query(f"min by (role, target) (tidegate_scrape_up{{{OWN_PAGES}}})", "answers"),
                Query(f"max by (role, target) (tidegate_scrape_duration_seconds{{{OWN_PAGES}}})", "took"),
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
            "The replicas that Tidegate would have had, against what the cluster was told by whoever scales now. Lower "
            "is saved, higher is bought. Let it act when you like what you see.",
            "short",
            [
                Query(of_one("tidegate_shadow_replicas"), "Tidegate would have"),
                Query(of_one("tidegate_replicas_wanted_by_cluster"), "cluster"),
            ],
            colours={"Tidegate would have": GREEN, "cluster": BLUE},
        ),
        graph(
            "Share of time that they disagree",
            "How much of the time Tidegate wanted more, or fewer, replicas than there were. `more` is requests that "
            "waited for a scaler that was late; `fewer` is GPUs held for nothing.",
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
                title, says, "h", Query(f"{increase_of(metric, '$__range', where=ONE)} / 3600"), width=6, decimals=2
            )
            for title, says, metric in (
                (
                    "GPU-hours it would have saved",
                    "What ran beyond what Tidegate would have run, while the board shows: `mode: act` saves it.",
                    "tidegate_shadow_gpu_seconds_saved_total",
                ),
                (
                    "GPU-hours it would have added",
                    "What Tidegate would have run beyond what ran: the price of not letting those requests wait.",
                    "tidegate_shadow_gpu_seconds_added_total",
                ),
                (
                    "Request-hours that waited",
                    "Requests waited while Tidegate wanted more replicas than there were: the present scaler is late.",
                    "tidegate_shadow_queue_seconds_total",
                ),
                (
                    "Hours observed",
                    "How long all this was counted for. A day at least should be behind a decision, better a week.",
                    "tidegate_shadow_seconds_total",
                ),
            )
        ),
    ]
