"""Builds the board Workload: one workload from its load to what the cluster does with the decision.

Worked example: replicas stay at 3 although "Replicas" shows a demand of 5. The timeline below shows `capped`: the
maximum is 3. With `serving`, "What holds the HPA" shows what holds the HPA.
"""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from ..board import WORKLOAD, Section, board, datasource, reasons_as_annotations, variable
from ..panels import GREY, Panel, Query, Step, graph, stat_of, timeline
from ..queries import (
    AMBER,
    BLUE,
    GREEN,
    ITL,
    ONE,
    ORANGE,
    OUTCOME_NAMES,
    OUTCOMES,
    PURPLE,
    REASON_NAMES,
    REASONS,
    RED,
    TEAL,
    TTFT,
    asleep,
    coded,
    latency,
    of_one,
    rate_of,
    select,
)
from .money import workload_money
from .workload_supply import gpus, observed, trust, zero

INTERVAL = "$__rate_interval"
BRAKES = {1.0: ("on", RED)}


def build() -> model.Dashboard:
    return board(
        WORKLOAD,
        "Tidegate / Workload",
        "One workload: its load, demand, decision and reason, and what the cluster does with the decision.",
        [
            datasource(),
            variable(
                "namespace",
                "Namespace",
                "label_values(tidegate_reason, namespace)",
                several=False,
                description="Namespace of the workload, not of Tidegate.",
            ),
            variable(
                "workload",
                "Workload",
                'label_values(tidegate_reason{namespace="$namespace"}, workload)',
                several=False,
                description="Further triggers of a ScaledObject are separate workloads: `chat/decode`.",
            ),
        ],
        [
            Section("Now", _now()),
            Section("Decision", _answer()),
            Section("SLO", _slo()),
            Section("Load", _load()),
            Section("Cluster", _cluster()),
            Section("GPUs", gpus()),
            Section("Zero", zero()),
            Section("Money", workload_money()),
            Section("Quality of the readings", trust()),
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
            "Reason of the decision in one word; docs/explanation/concepts.md explains each. `tidegate explain` shows "
            "every step with its numbers.",
            "none",
            Query(_reason()),
            names=REASON_NAMES,
        ),
        stat_of(
            "Replicas wanted",
            "The decision. `unknown`: KEDA and the HPA get an error and keep the present replicas. Runbook: "
            "TidegateDecisionUnknown.",
            "short",
            Query(of_one("tidegate_replicas")),
        ),
        stat_of(
            "Replicas ready",
            "Replicas that serve. Fewer than wanted for longer than a cold start: look at the pods.",
            "short",
            Query(of_one("tidegate_replicas_ready")),
            absence=asleep(),
        ),
        stat_of(
            "Requests waiting",
            "Requests that wait in the engines. Some are normal while replicas load; if they stay, compare demand and "
            "decision under Replicas.",
            "short",
            Query(of_one("tidegate_requests_waiting")),
            absence=asleep(),
        ),
        stat_of(
            "GPU activity",
            "Mean engine activity of the GPUs that the workload uses alone. A few percent under load: it is bound by "
            "something other than the GPU, and more replicas do not help.",
            "percentunit",
            Query(of_one("tidegate_workload_gpu_engine_active_ratio")),
            decimals=0,
            absence=asleep(),
        ),
        stat_of(
            "Age of the oldest reading",
            "Age of the oldest reading of the decision. Orange from 2 minutes: the decision is held, and from 5 "
            "minutes (`freshness.hold`) on it is an error. Runbook: TidegateDecisionHeld.",
            "s",
            Query(of_one("tidegate_reading_age_seconds")),
            [Step(120, ORANGE), Step(300, RED)],
            below=GREEN,
            decimals=0,
            absence=asleep(),
        ),
    ]


def _answer() -> list[Panel]:
    return [
        graph(
            "Replicas",
            "From demand to running replicas. Dashed: demand of each objective; bold: the decision; "
            "`published`: past the HPA's tolerance, which would ignore a small step; `HPA desires` and "
            "`cluster`: what the HPA made of it; `ready`: what serves; `GPU share`: room on shared GPUs. Demand above "
            "the decision: see the timeline below. Decision above the cluster: see the HPA's conditions. Cluster above "
            "ready: pods load, or have no node. Runbook: TidegateCapped, TidegateCapacityLimited, TidegateFlapping.",
            "short",
            [
                Query(of_one("tidegate_demand_replicas", "objective"), "demand {{objective}}"),
                Query(of_one("tidegate_replicas"), "decision"),
                Query(of_one("tidegate_published_replicas"), "published"),
                Query(of_one("tidegate_hpa_desired_replicas"), "HPA desires"),
                Query(of_one("tidegate_spec_replicas"), "cluster"),
                Query(of_one("tidegate_replicas_ready"), "ready"),
                Query(of_one("tidegate_replicas_pending"), "without a node"),
                Query(of_one("tidegate_gpu_share_replicas"), "GPU share"),
            ],
            width=24,
            height=10,
            colours={
                "decision": GREEN,
                "published": TEAL,
                "HPA desires": AMBER,
                "cluster": BLUE,
                "ready": GREY,
                "without a node": RED,
                "GPU share": ORANGE,
            },
            dashed=["demand .*", "GPU share"],
            bold=["decision"],
        ),
        timeline(
            "Reason over time",
            "The reason at each time; a gap is a time without Tidegate. Marks on all graphs are its changes. Many "
            "short bars of `loading` and `warm`: the keep-warm time is shorter than the gaps of the load.",
            [Query(_reason(), "reason")],
            REASON_NAMES,
        ),
        graph(
            "Load against its target",
            "Smoothed signal of each objective, divided by its target per replica: the demand before any limit. The "
            "highest decides. If it is not the intended one, change the targets. `slo` is the arriving work, in "
            "replicas, without headroom and hold.",
            "short",
            [
                Query(
                    f"{of_one('tidegate_signal', 'objective')} / {of_one('tidegate_signal_target', 'objective')}",
                    "{{objective}}",
                )
            ],
            width=8,
        ),
        *_overrides(),
    ]


def _overrides() -> list[Panel]:
    return [
        graph(
            "Schedules",
            "Floors and ceilings of active schedules, in replicas; no line without one. A decision that stays at one "
            "of them follows the schedule: nothing to fix.",
            "short",
            [
                Query(of_one("tidegate_workload_schedule_floor"), "floor"),
                Query(of_one("tidegate_workload_schedule_ceiling"), "ceiling"),
                Query(of_one("tidegate_replicas"), "decision"),
            ],
            width=8,
            colours={"floor": BLUE, "ceiling": RED, "decision": GREEN},
            bold=["decision"],
        ),
        timeline(
            "Brakes",
            "The brake that decides. If it is no longer needed: remove it, or give it an end "
            "(docs/how-to/overrides.md). Runbook: TidegateBrakeForgotten.",
            [Query(of_one("tidegate_workload_brake", "brake"), "{{brake}}")],
            BRAKES,
            width=8,
            height=8,
        ),
    ]


def _slo() -> list[Panel]:
    return [
        graph(
            "SLO attainment",
            "Requests of the last hour and of the last 3 days that met the SLO: an estimate between the bounds of the "
            "engine's buckets. Dashed: the objective of 99 %. No line: the engine has no histogram with a bucket near "
            "the SLO. Runbook: TidegateErrorBudgetBurn.",
            "percentunit",
            [Query(of_one("tidegate_slo_attainment_ratio", "window"), "{{window}}")],
            width=8,
            top=1.0,
            bottom=None,
            above=[Step(0.99, GREEN)],
            decimals=2,
        ),
        graph(
            "Error budget left",
            "Part of the error budget of the last 3 days (1 % of the requests) that is left. Below 0: more requests "
            "missed the SLO than it allows; at the bottom, twice as many or more. Look for `capped` and for long "
            "starts: the workload needs more replicas in time, or another SLO. Runbook: TidegateErrorBudgetSpent.",
            "percentunit",
            [Query(f"clamp_min({of_one('tidegate_slo_error_budget_ratio')}, -1)", "left")],
            width=8,
            top=1.0,
            bottom=-1.0,
            above=[Step(0.0, RED)],
            colours={"left": GREEN},
        ),
        graph(
            "How fast the error budget is spent",
            "How many times as fast as allowed requests miss the SLO: at 1 the budget of 3 days lasts 3 days. Above "
            "14.4 (dashed) over both windows: see the alert's runbook.",
            "short",
            [Query(_burn(window), window) for window in ("1h", "5m")],
            width=8,
            above=[Step(14.4, RED)],
            colours={"1h": BLUE, "5m": AMBER},
        ),
        *(
            graph(
                title,
                f"{what}, of the engine's own histogram: half of them, and 95 of 100. No line: nothing was served, the "
                "engine has no such histogram, or this Prometheus does not scrape its pods with the labels namespace "
                "and pod.",
                "s",
                [Query(latency(ratio, histograms), name) for ratio, name in ((0.5, "half"), (0.95, "95 of 100"))],
                colours={"half": TEAL, "95 of 100": ORANGE},
            )
            for title, what, histograms in (
                ("Time to first token", "Wait from a request to its first token", TTFT),
                ("Time between tokens", "Wait from one token to the next", ITL),
            )
        ),
    ]


def _burn(window: str) -> str:
    """Misses per request within a window, in error budgets: 1 % of the requests."""
    misses, requests = (
        f"max by (namespace, workload) (rate({select(f'tidegate_slo_{what}_total', ONE)}[{window}]))"
        for what in ("misses", "requests")
    )
    return f"{misses} / {requests} / 0.01"


def _load() -> list[Panel]:
    return [
        graph(
            "Requests",
            "Requests that wait and run in the engines, and that the gateway holds while nothing serves. If `held` "
            "stays, the wake fails. If `waiting` stays: see Replicas.",
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
            "Used KV cache of the engines, mean over replicas. Near 1 (dashed) engines preempt requests and slow "
            "down: lower the target per replica, or give it more memory.",
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
            "Prompt tokens read and generated tokens. Prompts that grow while requests do not also need more "
            "replicas: an SLO counts them, requests per replica do not.",
            "short",
            [Query(rate_of("tidegate_tokens_total", INTERVAL, "kind", where=ONE), "{{kind}}")],
            colours={"prompt": BLUE, "generation": GREEN},
        ),
    ]


def _cluster() -> list[Panel]:
    return [
        timeline(
            "What holds the HPA",
            "Conditions of the HorizontalPodAutoscaler with their reasons. `ScalingLimited`: its minimum, maximum or "
            "policy limits it. `ScalingActive` false: it gets no metric, or is paused. `AbleToScale` false: it may "
            "not write the replicas.",
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
            "What KEDA and the HPA do",
            "What KEDA and the HPA will do with the decision: follow it, wait for a stabilization window, stop at a "
            "policy, or ignore it. `tidegate explain` has a sentence for each.",
            [
                Query(
                    f"{number:g} * {of_one('tidegate_controller_outcome', 'code', code='~' + '|'.join(codes))}",
                    "{{code}}",
                )
                for number, codes in enumerate(OUTCOMES.values(), start=1)
            ],
            OUTCOME_NAMES,
            width=12,
            height=8,
        ),
    ]
