"""Workload: one workload from its load to what the cluster does with the answer, and why.

Worked example: replicas stay at 3 though "Replicas" shows a demand of 5. The timeline below says `capped`: the maximum
is 3. Were it `serving`, "What the HPA says" would show what holds the HPA back.
"""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from ..board import WORKLOAD, Section, board, datasource, reasons_as_annotations, variable
from ..panels import Panel, Query, Step, graph, stat_of, timeline
from ..words import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    ONE,
    ORANGE,
    OUTLOOK_NAMES,
    OUTLOOKS,
    PURPLE,
    REASON_NAMES,
    REASONS,
    RED,
    TEAL,
    coded,
    of_one,
    rate_of,
)
from .workload_supply import gpus, observed, trust, zero

INTERVAL = "$__rate_interval"
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
            Section("GPUs", gpus()),
            Section("Zero", zero()),
            Section("How far the numbers can be believed", trust()),
            Section("Observed: what acting would change", observed(), collapsed=True),
        ],
        [reasons_as_annotations(_new_reason(), PURPLE)],
    )


def _new_reason() -> str:
    reason = of_one("tidegate_reason", "reason")
    return f"{reason} unless {reason.replace('})', '} offset 1m)')}"


def _reason() -> str:
    return coded("tidegate_reason", "reason", [str(reason) for reason in REASONS], ONE)


def _now() -> list[Panel]:
    return [
        stat_of(
            "Reason",
            "Why the answer is what it is, in one word; docs/explanation/concepts.md says what each means. `tidegate "
            "explain` says "
            "it in sentences, with every number on the way.",
            "none",
            Query(_reason()),
            names=REASON_NAMES,
        ),
        stat_of(
            "Replicas wanted",
            "The answer. `unknown`: whoever asks gets an error and keeps what there is. Runbook: "
            "TidegateDecisionUnknown.",
            "short",
            Query(of_one("tidegate_replicas")),
        ),
        stat_of(
            "Replicas ready",
            "Replicas that serve. Fewer than wanted for longer than a cold start: look at the pods.",
            "short",
            Query(of_one("tidegate_replicas_ready")),
        ),
        stat_of(
            "Requests waiting",
            "Requests that wait in the engines. Some is normal while replicas load; staying: see Replicas for what is "
            "asked and what is allowed.",
            "short",
            Query(of_one("tidegate_requests_waiting")),
        ),
        stat_of(
            "GPU activity",
            "Mean engine activity of the GPUs that are wholly its own. A few percent under load: it is bound by "
            "something else than the GPU, and more replicas would not help.",
            "percentunit",
            Query(of_one("tidegate_workload_gpu_engine_active_ratio")),
            decimals=0,
        ),
        stat_of(
            "Age of its oldest reading",
            "How old what the answer rests on is. Orange from 2 minutes: the answer is held, and from 5 minutes "
            "(`freshness.hold`) on it is an error. Runbook: TidegateDecisionHeld.",
            "s",
            Query(of_one("tidegate_reading_age_seconds")),
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
            "what they made of it; `ready`: what serves. Demand above the answer: see the timeline below. Answer "
            "above the cluster: see what the HPA says. Cluster above ready: pods load, or have no node. Runbook: "
            "TidegateCapped, TidegateFlapping.",
            "short",
            [
                Query(of_one("tidegate_demand_replicas", "objective"), "demand {{objective}}"),
                Query(of_one("tidegate_replicas"), "answer"),
                Query(of_one("tidegate_replicas_told"), "told"),
                Query(of_one("tidegate_hpa_desired_replicas"), "HPA desires"),
                Query(of_one("tidegate_replicas_wanted_by_cluster"), "cluster"),
                Query(of_one("tidegate_replicas_ready"), "ready"),
                Query(of_one("tidegate_replicas_pending"), "without a node"),
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
            "Each objective's smoothed signal, divided by what one replica should carry of it: the replicas that it "
            "asks for, before any limit. The highest wins. If it is not the one you mean to size by, mend the targets.",
            "short",
            [
                Query(
                    f"{of_one('tidegate_signal', 'objective')} / {of_one('tidegate_signal_target', 'objective')}",
                    "{{objective}}",
                )
            ],
            width=8,
        ),
        graph(
            "What people ordered",
            "Floors and ceilings that schedules set now, in replicas; no line where none holds. An answer that sticks "
            "to one of them is an order, and no fault.",
            "short",
            [
                Query(of_one("tidegate_workload_schedule_floor"), "floor"),
                Query(of_one("tidegate_workload_schedule_ceiling"), "ceiling"),
                Query(of_one("tidegate_replicas"), "answer"),
            ],
            width=8,
            colours={"floor": BLUE, "ceiling": RED, "answer": GREEN},
            bold=["answer"],
        ),
        timeline(
            "Brakes",
            "The brake that decides, while one does. Still on when it is not wanted any more: take it off, or give it "
            "an end (docs/how-to/overrides.md). Runbook: TidegateBrakeLeftOn.",
            [Query(of_one("tidegate_workload_brake", "brake"), "{{brake}}")],
            BRAKES,
            width=8,
            height=8,
        ),
    ]


def _load() -> list[Panel]:
    return [
        graph(
            "Requests",
            "What waits and runs in the engines, and what the gateway holds while nothing serves. `held` that stays: "
            "the wake does not come. `waiting` that stays: see Replicas.",
            "short",
            [
                Query(of_one("tidegate_requests_running"), "running"),
                Query(of_one("tidegate_requests_waiting"), "waiting"),
                Query(of_one("tidegate_requests_held"), "held"),
            ],
            stacked=True,
            colours={"running": GREEN, "waiting": ORANGE, "held": PURPLE},
        ),
        graph(
            "KV cache",
            "Use of the engines' KV cache, mean over replicas. Near 1 (dashed) engines preempt requests and answer "
            "more slowly: let a replica carry less work, or give it more memory.",
            "percentunit",
            [Query(of_one("tidegate_kv_cache_used_ratio"), "used")],
            top=1.0,
            above=[Step(0.95, RED)],
            colours={"used": TEAL},
        ),
        graph(
            "Requests finished per second",
            "Over the last minute. Flat while requests wait: the replicas are full, or stuck.",
            "reqps",
            [Query(of_one("tidegate_requests_per_second"), "requests")],
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
                    f"{of_one('tidegate_hpa_condition', 'type', 'status', 'reason')} == 1",
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
            [
                Query(f"{number:g} * {of_one('tidegate_outlook', 'code', code='~' + '|'.join(codes))}", "{{code}}")
                for number, codes in enumerate(OUTLOOKS.values(), start=1)
            ],
            OUTLOOK_NAMES,
            width=12,
            height=8,
        ),
    ]
