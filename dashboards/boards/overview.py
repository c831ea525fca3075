"""Overview: the fleet on one page. How many GPUs serve, wait and sleep, and which workloads need somebody.

Worked example: "Capped at the maximum" is empty on a good day; a click on a row of it opens the workload's own board.
"""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from ..board import OVERVIEW, Section, board, datasource, variable
from ..panels import Column, Panel, Query, Step, graph, rows, stat_of
from ..words import AMBER, BLUE, GREEN, NAVY, ORANGE, PURPLE, REASONS, RED, STATES, fleet, increase_of, of
from .overview_lists import NAME, all_workloads, needs_somebody

HOURS = " / 3600"


def made() -> model.Dashboard:
    return board(
        OVERVIEW,
        "Tidegate / Overview",
        "What the fleet's GPUs do, what sleeps, and which workloads need somebody.",
        [
            datasource(),
            variable(
                "namespace",
                "Namespace",
                "label_values(tidegate_reason, namespace)",
                several=True,
                says="Of workloads, not of Tidegate. For its own alone see docs/how-to/dashboards.md, honor_labels.",
            ),
        ],
        [
            Section("Now", _now()),
            Section("Over time", _over_time()),
            Section("What needs somebody", needs_somebody()),
            Section("All workloads", [all_workloads()]),
            Section("Zero: what it costs and saves", _zero()),
            Section("Observed workloads: what acting would change", _observed()),
        ],
    )


def _gpus(state: str) -> str:
    return fleet("tidegate_workload_gpus", state=state)


def _now() -> list[Panel]:
    return [
        stat_of(
            "GPUs serving",
            "GPUs of workloads that serve requests now. This is what the money is for; nothing to do.",
            "short",
            Query(_gpus("serving")),
            below=GREEN,
        ),
        stat_of(
            "GPUs idle, kept warm",
            "GPUs of workloads that have nothing to do and are kept for the next request. Much of it for long: let the "
            "keep-warm time be learned (docs/explanation/estimators.md), or look which workloads have a minimum above "
            "0.",
            "short",
            Query(_gpus("idle_warm")),
            below=AMBER,
        ),
        stat_of(
            "GPUs loading or pending",
            "GPUs of replicas that load a model or wait for a node. It falls within a cold start. If it does not, look "
            "at the pods: no node has room, or an image or a model does not come.",
            "short",
            Query(_gpus("~loading|pending")),
            below=BLUE,
        ),
        stat_of(
            "GPUs asleep",
            "GPUs that workloads at zero would hold if they ran at their minimum, at least one replica each. They are "
            "free for others. Falling without load: something wakes workloads; see wakes below.",
            "short",
            Query(_gpus("asleep")),
            below=NAVY,
        ),
        stat_of(
            "GPU-hours asleep",
            "GPU-hours that were not held because workloads were at zero, over the time that the board shows. Compare "
            "it with what the wakes below made people wait.",
            "h",
            Query(f"sum({increase_of('tidegate_workload_gpu_seconds_total', '$__range', state='asleep')}){HOURS}"),
            below=NAVY,
            decimals=1,
        ),
        stat_of(
            "Workloads without an answer",
            "Workloads whose demand is not known: whoever asks gets an error, KEDA and the HPA keep what there is, and "
            "growing load is not answered. One is too many. Runbook: TidegateDecisionUnknown.",
            "short",
            # None known at all is no zero of those that are: it is zero times as many as there are.
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
        graph(
            "GPUs by what they do",
            "All GPUs of all workloads, by the state of the workload. Idle-warm is what keep-warm costs; asleep is "
            "what zero saves. A step in `unknown` is an outage of sources: see Tidegate itself.",
            "short",
            [Query(fleet("tidegate_workload_gpus", "state"), "{{state}}")],
            stacked=True,
            colours=STATES,
        ),
        graph(
            "Workloads by state",
            "How many workloads were in each state, on average over a step of the graph. A workload that loads and "
            "sleeps by turns is one that its keep-warm time is too short for.",
            "short",
            [Query(fleet("tidegate_workload_state_seconds_total", "state", window="$__rate_interval"), "{{state}}")],
            stacked=True,
            colours=STATES,
        ),
        graph(
            "Workloads by reason",
            "Why each workload's answer is what it is. `capped`, `held`, `unknown` and `no_waker` are listed by name "
            "below; `frozen` and `scheduled` are somebody's orders.",
            "short",
            [Query(f"count by (reason) ({of('tidegate_reason', 'reason')})", "{{reason}}")],
            stacked=True,
            colours={str(reason): colour for reason, colour in REASONS.items()},
        ),
        graph(
            "Requests",
            "What waits and runs in the engines, and what gateways hold at zero, of all workloads whose numbers are "
            "known. `held` that stays is a wake that does not come: look for the workload among those that load or are "
            "capped.",
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
            "How often workloads went to zero and came back, within the hour before. Many wakes of few workloads: "
            "their keep-warm time is shorter than the gaps of their load. Runbook: TidegateFlapping.",
            "short",
            [
                Query(f"sum({increase_of('tidegate_wakes_total', '1h')})", "wakes"),
                Query(f"sum({increase_of('tidegate_sleeps_total', '1h')})", "sleeps"),
            ],
            colours={"wakes": GREEN, "sleeps": NAVY},
            decimals=1,
        ),
        graph(
            "Longest cold starts",
            "Nine starts of ten took no longer, for the ten slowest workloads. Above 5 minutes (dashed) most clients "
            "have given up: load the model from a local disk, or keep that workload warm.",
            "s",
            [
                Query(
                    f"topk(10, {of('tidegate_cold_start_seconds', quantile='0.9')})",
                    "{{namespace}}/{{workload}}",
                )
            ],
            above=[Step(300, RED)],
        ),
        rows(
            "What learning the keep-warm time saves a day",
            "Hours of one replica that the learned keep-warm time saves a day against the constant of the "
            "configuration, and the same in money with what waiting costs. Below 0 it holds GPUs longer, to spare "
            "people the wait. Not what you want: say what a wait is worth in `prices` "
            "(docs/explanation/estimators.md).",
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
            "How much GPU time each state takes, as GPUs on average over a step of the graph: its area is GPU-hours. "
            "Serve more of what is green, and see what is amber for longer than a night.",
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
            "What observed workloads ran beyond what Tidegate would have run, over the time that the board shows. Let "
            "it act (`mode: act`, docs/how-to/observe-first.md) where much is saved and little waits.",
            "h",
            Query(_saved("tidegate_shadow_gpu_seconds_saved_total")),
            below=GREEN,
            decimals=1,
            width=6,
        ),
        stat_of(
            "GPU-hours it would have added",
            "What Tidegate would have run beyond what ran. It is the price of the requests that waited, beside it.",
            "h",
            Query(_saved("tidegate_shadow_gpu_seconds_added_total")),
            below=AMBER,
            decimals=1,
            width=6,
        ),
        stat_of(
            "Request-hours that waited",
            "Time that requests waited while Tidegate wanted more replicas than there were: what the present scaler's "
            "lateness cost people, over the time that the board shows.",
            "h",
            Query(_saved("tidegate_shadow_queue_seconds_total")),
            below=ORANGE,
            decimals=2,
            width=6,
        ),
        stat_of(
            "Observed workloads",
            "Workloads that are decided and not acted on: whoever asks for their number gets an error. One that stays "
            "here for weeks is a decision that somebody has to make.",
            "short",
            Query(f"sum({of('tidegate_observed')})"),
            width=6,
        ),
        rows(
            "Observed workloads, one by one",
            "Over the time that the board shows. Much saved and nothing waited: let it act. Much time in which it "
            "wanted more: the present scaler is late, see the workload's board.",
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
