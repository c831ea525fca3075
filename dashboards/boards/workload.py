"""Workload: one workload from its load to what the cluster does with the answer, and why.

Worked example: replicas stay at 3 though "Replicas" shows a demand of 5. The timeline below says `capped`: the maximum
is 3. Were it `serving`, "What the HPA says" would show what holds the HPA back.
"""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from ..board import WORKLOAD, Section, board, datasource, reasons_as_annotations, variable
from ..panels import Column, Panel, Query, Step, graph, rows, stat_of, timeline
from ..words import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    NAVY,
    ONE,
    ORANGE,
    PALE_BLUE,
    PROVENANCE_NAMES,
    PROVENANCES,
    PURPLE,
    REASON_NAMES,
    REASONS,
    RED,
    STATES,
    TEAL,
    coded,
    increase_of,
    of,
    rate_of,
)

INTERVAL = "$__rate_interval"
# As `role`, `owner` and `target` of a scrape are: whose page it is.
OWN_PAGES = 'owner="$namespace/$workload"'
BRAKES = {1.0: ("on", RED)}


def made() -> model.Dashboard:
    return board(
        WORKLOAD,
        "Tidegate / Workload",
        "One workload: its load, what it asks for, what is answered and why, and what the cluster makes of it.",
        [
            datasource(),
            variable(
                "namespace",
                "Namespace",
                "label_values(tidegate_reason, namespace)",
                several=False,
                says="The workload's namespace, not Tidegate's.",
            ),
            variable(
                "workload",
                "Workload",
                'label_values(tidegate_reason{namespace="$namespace"}, workload)',
                several=False,
                says="A ScaledObject's further triggers are workloads of their own: `chat/decode`.",
            ),
        ],
        [
            Section("Now", _now()),
            Section("What is answered, and why", _answer()),
            Section("What comes in", _load()),
            Section("What the cluster does with the answer", _cluster()),
            Section("GPUs", _gpus()),
            Section("Zero", _zero()),
            Section("How far the numbers can be believed", _trust()),
            Section("Observed: what enforcing would change", _observed()),
        ],
        [reasons_as_annotations(_new_reason(), PURPLE)],
    )


def _one(metric: str, *labels: str, **matchers: str) -> str:
    return of(metric, *labels, where=ONE, **matchers)


def _new_reason() -> str:
    reason = _one("tidegate_reason", "reason")
    return f"{reason} unless {reason.replace('})', '} offset 1m)')}"


def _reason() -> str:
    return coded("tidegate_reason", "reason", [str(reason) for reason in REASONS], ONE)


def _now() -> list[Panel]:
    return [
        stat_of(
            "Reason",
            "Why the answer is what it is, in one word; docs/concepts.md says what each means. `tidegate explain` says it "
            "in sentences, with every number on the way.",
            "none",
            Query(_reason()),
            names=REASON_NAMES,
        ),
        stat_of(
            "Replicas wanted",
            "The answer. `unknown`: whoever asks gets an error and keeps what there is. Runbook: TidegateDecisionUnknown.",
            "short",
            Query(_one("tidegate_replicas")),
        ),
        stat_of(
            "Replicas ready",
            "Replicas that serve. Fewer than wanted for longer than a cold start: look at the pods.",
            "short",
            Query(_one("tidegate_replicas_ready")),
        ),
        stat_of(
            "Requests waiting",
            "Requests that wait in the engines. Some is normal while replicas load; staying: see Replicas for what is "
            "asked and what is allowed.",
            "short",
            Query(_one("tidegate_requests_waiting")),
        ),
        stat_of(
            "GPU activity",
            "Mean engine activity of the GPUs that are wholly its own. A few percent under load: it is bound by "
            "something else than the GPU, and more replicas would not help.",
            "percentunit",
            Query(_one("tidegate_workload_gpu_engine_active_ratio")),
            decimals=0,
        ),
        stat_of(
            "Age of its oldest reading",
            "How old what the answer rests on is. Orange from 2 minutes: the answer is held, and from 5 minutes "
            "(`freshness.hold`) on it is an error. Runbook: TidegateDecisionHeld.",
            "s",
            Query(_one("tidegate_reading_age_seconds")),
            [Step(120, ORANGE), Step(300, RED)],
            below=GREEN,
            decimals=0,
        ),
    ]


def _answer() -> list[Panel]:
    return [
        graph(
            "Replicas",
            "From demand to what runs. Dashed: what each objective alone asks for; bold: the answer; `told`: what KEDA "
            "and the HPA hear (past the HPA's tolerance, where it would swallow a step); `HPA desires` and `cluster`: "
            "what they made of it; `ready`: what serves. Demand above the answer: see the timeline below. Answer above "
            "the cluster: see what the HPA says. Cluster above ready: pods load, or have no node. Runbook: "
            "TidegateCapped, TidegateFlapping.",
            "short",
            [
                Query(_one("tidegate_demand_replicas", "objective"), "demand {{objective}}"),
                Query(_one("tidegate_replicas"), "answer"),
                Query(_one("tidegate_replicas_told"), "told"),
                Query(_one("tidegate_hpa_desired_replicas"), "HPA desires"),
                Query(_one("tidegate_replicas_wanted_by_cluster"), "cluster"),
                Query(_one("tidegate_replicas_ready"), "ready"),
                Query(_one("tidegate_replicas_pending"), "without a node"),
            ],
            width=24,
            height=10,
            colours={
                "answer": GREEN,
                "told": TEAL,
                "HPA desires": AMBER,
                "cluster": BLUE,
                "ready": GREY,
                "without a node": RED,
            },
            dashed=["demand .*"],
            bold=["answer"],
        ),
        timeline(
            "Reason over time",
            "The reason of each moment; a gap is a time without Tidegate. Marks on all graphs are its changes. Many "
            "short bars of `loading` and `warm`: the keep-warm time is shorter than the gaps of the load.",
            [Query(_reason(), "reason")],
            REASON_NAMES,
        ),
        graph(
            "Signals against their targets",
            "Each objective's smoothed signal, divided by what one replica should carry of it: the replicas that it asks "
            "for, before any limit. The highest wins. If it is not the one you mean to size by, mend the targets.",
            "short",
            [
                Query(
                    f"{_one('tidegate_signal', 'objective')} / {_one('tidegate_signal_target', 'objective')}",
                    "{{objective}}",
                )
            ],
            width=8,
        ),
        graph(
            "What people ordered",
            "Floors and ceilings that schedules set now, in replicas; no line where none holds. An answer that sticks to "
            "one of them is an order, and no fault.",
            "short",
            [
                Query(_one("tidegate_workload_schedule_floor"), "floor"),
                Query(_one("tidegate_workload_schedule_ceiling"), "ceiling"),
                Query(_one("tidegate_replicas"), "answer"),
            ],
            width=8,
            colours={"floor": BLUE, "ceiling": RED, "answer": GREEN},
            bold=["answer"],
        ),
        timeline(
            "Brakes",
            "The brake that decides, while one does. Still on when it is not wanted any more: take it off, or give it an "
            "end (docs/orders.md). Runbook: TidegateBrakeLeftOn.",
            [Query(_one("tidegate_workload_brake", "brake"), "{{brake}}")],
            BRAKES,
            width=8,
            height=8,
        ),
    ]


def _load() -> list[Panel]:
    return [
        graph(
            "Requests",
            "What waits and runs in the engines, and what the gateway holds while nothing serves. `held` that stays: the "
            "wake does not come. `waiting` that stays: see Replicas.",
            "short",
            [
                Query(_one("tidegate_requests_running"), "running"),
                Query(_one("tidegate_requests_waiting"), "waiting"),
                Query(_one("tidegate_requests_held"), "held"),
            ],
            stacked=True,
            colours={"running": GREEN, "waiting": ORANGE, "held": PURPLE},
        ),
        graph(
            "KV cache",
            "Use of the engines' KV cache, mean over replicas. Near 1 (dashed) engines preempt requests and answer more "
            "slowly: let a replica carry less work, or give it more memory.",
            "percentunit",
            [Query(_one("tidegate_kv_cache_used_ratio"), "used")],
            top=1.0,
            above=[Step(0.95, RED)],
            colours={"used": TEAL},
        ),
        graph(
            "Requests finished per second",
            "Over the last minute. Flat while requests wait: the replicas are full, or stuck.",
            "reqps",
            [Query(_one("tidegate_requests_per_second"), "requests")],
            colours={"requests": GREEN},
        ),
        graph(
            "Tokens per second",
            "Tokens read (prompt) and written (generation). Prompts that grow while requests do not need more replicas "
            "all the same: size by tokens or GPU activity then.",
            "short",
            [Query(rate_of("tidegate_tokens_total", INTERVAL, "kind", where=ONE), "{{kind}}")],
            colours={"prompt": BLUE, "generation": GREEN},
        ),
    ]


def _cluster() -> list[Panel]:
    return [
        timeline(
            "What the HPA says",
            "The conditions of its HorizontalPodAutoscaler, with the reasons that it gives. `ScalingLimited`: its own "
            "minimum, maximum or policy holds it. `ScalingActive` false: it does not hear us, or it is paused. "
            "`AbleToScale` false: it may not write the replicas.",
            [
                Query(
                    f"{_one('tidegate_hpa_condition', 'type', 'status', 'reason')} == 1",
                    "{{type}}={{status}} ({{reason}})",
                )
            ],
            {1.0: ("holds", BLUE)},
            width=12,
            height=8,
        ),
        timeline(
            "What will become of the answer",
            "What Tidegate foresees that KEDA and the HPA do with the answer: follow it, wait for a stabilisation "
            "window, stop at a policy, or not listen. `tidegate explain` has the sentence for each.",
            [Query(f"{_one('tidegate_outlook', 'code')} == 1", "{{code}}")],
            {1.0: ("holds", TEAL)},
            width=12,
            height=8,
        ),
    ]


def _gpus() -> list[Panel]:
    activity = (
        f"{_one('tidegate_workload_gpu_engine_active_ratio')}"
        f" * on (namespace, workload) group_left (provenance) {_one('tidegate_workload_gpu_provenance', 'provenance')}"
    )
    return [
        graph(
            "GPU activity, by how it is known",
            "Mean engine activity of its own GPUs, beside the most that MIG instances can reach. Known by `engine` it may "
            "size; by `utilisation` or `process` it only proves idleness; a shared device's number is nobody's share "
            "(docs/gpus.md).",
            "percentunit",
            [
                Query(activity, "{{provenance}}"),
                Query(_one("tidegate_workload_gpu_engine_ceiling_ratio"), "ceiling of MIG"),
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
            [Query(_one("tidegate_workload_gpus", "state"), "{{state}}")],
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
                Query(_one("tidegate_gpus_held"), "held"),
                Query(_one("tidegate_gpus_seen"), "seen"),
                Query(_one("tidegate_workload_gpus_lost"), "lost"),
            ],
            colours={"held": BLUE, "seen": GREEN, "lost": RED},
            width=8,
        ),
        graph(
            "GPU memory held",
            "Residency: what its pods hold, busy or not. It is never a reason to scale; compare it with the activity to "
            "see what an idle replica keeps from others.",
            "bytes",
            [Query(_one("tidegate_workload_gpu_memory_held_bytes"), "held")],
            colours={"held": PURPLE},
            width=8,
        ),
    ]


def _zero() -> list[Panel]:
    return [
        graph(
            "Idle, and how long it is kept warm",
            "How long nothing has been to be done, against the time after which it goes to zero. Over the line and not "
            "asleep: it has a minimum above 0, or nothing would wake it. Runbook: TidegateCannotWake.",
            "s",
            [
                Query(_one("tidegate_idle_seconds"), "idle for"),
                Query(_one("tidegate_keep_warm_seconds"), "kept warm for"),
            ],
            colours={"idle for": NAVY, "kept warm for": AMBER},
            dashed=["kept warm for"],
        ),
        graph(
            "Cold starts",
            "How long a start takes, from the pod's creation to its first token: as a rule (0.5) and nine of ten (0.9). "
            "It is what the first request after zero waits. Above 5 minutes (dashed) most clients have given up.",
            "s",
            [Query(_one("tidegate_cold_start_seconds", "quantile"), "{{quantile}}")],
            colours={"0.5": TEAL, "0.9": ORANGE},
            above=[Step(300, RED)],
        ),
        graph(
            "Wakes and sleeps per hour",
            "How often it came back from zero and went there, within the hour before. More than a few: keep it warm for "
            "longer than the gaps of its load, or let that be learned.",
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
            Query(f"{_one('tidegate_keep_warm_saved_gpu_seconds_per_day')} / 3600"),
            decimals=2,
        ),
        stat_of(
            "And in money a day",
            "The same with what waiting for starts costs, in the money of `prices`. Below 0 for weeks: the constant was "
            "better, set `keep_warm` to it.",
            "short",
            Query(_one("tidegate_keep_warm_saved_money_per_day")),
            decimals=2,
        ),
        stat_of(
            "Starts in advance",
            "When it starts again before the next request is expected. `unknown`: no request is foreseen, which is the "
            "rule.",
            "dateTimeFromNow",
            Query(f"{_one('tidegate_starts_again_timestamp_seconds')} * 1000"),
        ),
        stat_of(
            "GPU-hours asleep",
            "GPU-hours that it did not hold because it was at zero, over the time that the board shows. Hold it against what "
            "the wakes beside it made people wait.",
            "h",
            Query(
                f"{increase_of('tidegate_workload_gpu_seconds_total', '$__range', where=ONE, state='asleep')} / 3600"
            ),
            below=NAVY,
            decimals=1,
        ),
    ]


def _trust() -> list[Panel]:
    return [
        graph(
            "Age of readings, and holding",
            "How old the oldest reading behind the answer is, and how long the answer has been held for want of fresh "
            "ones. Dashed: 5 minutes, where a held answer becomes an error unless `freshness.hold` says otherwise. "
            "Runbook: TidegateDecisionHeld, TidegateSleeperBlind.",
            "s",
            [
                Query(_one("tidegate_reading_age_seconds"), "age"),
                Query(_one("tidegate_held_seconds"), "held for"),
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
            [Query(_one("tidegate_stale_sources"), "silent")],
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


def _observed() -> list[Panel]:
    return [
        graph(
            "What it would have run",
            "The replicas that Tidegate would have had, against what the cluster was told by whoever scales now. Lower "
            "is saved, higher is bought. Enforce it when you like what you see.",
            "short",
            [
                Query(_one("tidegate_shadow_replicas"), "Tidegate would have"),
                Query(_one("tidegate_replicas_wanted_by_cluster"), "cluster"),
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
                    "What ran beyond what Tidegate would have run, over the time that the board shows. Worth it: set "
                    "`mode: enforce`.",
                    "tidegate_shadow_gpu_seconds_saved_total",
                ),
                (
                    "GPU-hours it would have added",
                    "What Tidegate would have run beyond what ran: the price of not letting those requests wait.",
                    "tidegate_shadow_gpu_seconds_added_total",
                ),
                (
                    "Request-hours that waited",
                    "Requests that waited while Tidegate wanted more replicas than there were. Above 0: the present "
                    "scaler is late.",
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
