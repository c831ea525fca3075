"""Builds the panels of money for the boards Overview and Workload, from the costs that Tidegate itself has counted.

Each GPU-second was counted at the price of its moment, so a new price changes no past cost. All panels are over the
board's time range and in the currency of the configured prices.

Worked example: a workload held 8 GPUs for an hour at 3, 2 of them idle, and has a maximum of 4 replicas of 8 GPUs.
"Spent" is 24, "Spent on idle GPUs" 6, and "Saved against the maximum" 4 * 8 * 3 - 24 = 72.
"""

from __future__ import annotations

from ..board import TO_WORKLOAD
from ..panels import Absence, Column, Panel, Query, Step, graph, rows, stat_of
from ..queries import AMBER, FLEET, GREEN, ONE, STATES, increase_of, of, of_one, rate_of

RANGE = "$__range"
HELD = "~serving|idle_warm|loading|unknown"
# As in the accounts: a ratio to tokens is of nearly all GPUs, or it is unknown.
COVERED = 0.99
NO_PRICE = "no price configured"
SETTING = "Set `prices` in the configuration (docs/explanation/accounting.md)."
FLEET_WITHOUT_PRICE = Absence(
    NO_PRICE, f"count({of('tidegate_observed')}) unless count({of('tidegate_workload_gpu_hour')})"
)
WITHOUT_PRICE = Absence(NO_PRICE, f"{of_one('tidegate_observed')} unless {of_one('tidegate_workload_gpu_hour')}")


def spent(where: str = FLEET, states: str = HELD) -> str:
    """The cost of GPUs in these states, per workload."""
    return increase_of("tidegate_workload_cost_total", RANGE, where=where, state=states)


def saved(baseline: str, where: str = FLEET) -> str:
    """The cost of always on, less that of the same time as it was, per workload. baseline: `maximum` or `peak`."""
    always, was = (
        increase_of("tidegate_workload_baseline_cost_total", RANGE, where=where, baseline=each)
        for each in (baseline, "held")
    )
    return f"{always} - {was}"


def per_million(total: str, covered: str, kind: str, where: str = FLEET) -> str:
    """What a million tokens of these kinds took. total: an increase per workload. covered: the counter of the
    GPU-seconds in it.
    """
    tokens = increase_of("tidegate_tokens_total", RANGE, "kind", where=where, kind=kind)
    held = increase_of("tidegate_workload_gpu_seconds_total", RANGE, where=where, state=HELD)
    nearly_all = f"{increase_of(covered, RANGE, where=where)} >= {COVERED:g} * {held}"
    on = "on (namespace, workload)"
    return f"1e6 * {total} / {on} group_right () ({tokens} > 0)\nand {on} ({nearly_all})"


def _columns(*first: Column) -> list[Column]:
    return [*first, *(Column(name, decimals=2) for name in ("spent", "idle", "saved: maximum", "saved: peak"))]


def _by(label: str, joined: str = "") -> list[Query]:
    """Spent and saved by a label. joined: a product that gives the series of workloads this label."""
    queries = {
        "spent": spent(),
        "idle": spent(states="idle_warm"),
        "saved: maximum": saved("maximum"),
        "saved: peak": saved("peak"),
    }
    return [Query(f"sum by ({label}) (({expr}){joined})", name) for name, expr in queries.items()]


def _amounts(where: str, absence: Absence, *, over_all: bool) -> list[Panel]:
    """Spent and saved. over_all: summed over workloads."""

    def amount(title: str, description: str, expr: str, colour: str = "text") -> Panel:
        query = Query(f"sum({expr})" if over_all else expr)
        return stat_of(title, description, "short", query, below=colour, decimals=2, absence=absence)

    return [
        amount(
            "Spent",
            "Cost of GPUs that serve, load, are kept warm or do something unknown. Each hour has the price of its "
            f"moment. {SETTING}",
            spent(where),
        ),
        amount(
            "Spent on idle GPUs",
            "The part of it for GPUs without work, kept for the next request. To reduce it: let Tidegate learn the "
            "keep-warm time (docs/explanation/estimators.md).",
            spent(where, "idle_warm"),
            AMBER,
        ),
        amount(
            "Saved against the maximum",
            "What the same time would have cost more with the maximum of replicas, always on. It is saved only if "
            "something else uses the GPUs, or the nodes go away.",
            saved("maximum", where),
            GREEN,
        ),
        amount(
            "Saved against the peak",
            "What the same time would have cost more with the most GPUs that were held until then in each day (UTC), "
            "always on: a number of replicas that fits the day.",
            saved("peak", where),
            GREEN,
        ),
    ]


def fleet_money() -> list[Panel]:
    """For all workloads."""
    return [
        *_amounts(FLEET, FLEET_WITHOUT_PRICE, over_all=True),
        stat_of(
            "GPUs that no workload holds",
            "Cost of the GPUs of all nodes that no workload holds. Much: let the cluster's autoscaler remove nodes. It "
            "needs a price, and a Tidegate that watches all namespaces.",
            "short",
            Query(f'sum(increase(tidegate_node_cost_total{{state="unallocated"}}[{RANGE}]))'),
            below=AMBER,
            decimals=2,
            absence=Absence(
                "not configured", f"count({of('tidegate_observed')}) unless count(tidegate_node_cost_total)"
            ),
        ),
        stat_of(
            "GPU-hours without a price",
            f"GPU-hours of models without a price, which are in no cost here. {SETTING}",
            "h",
            Query(
                f"clamp_min(sum({increase_of('tidegate_workload_gpu_seconds_total', RANGE, state=HELD)})"
                f" - (sum({increase_of('tidegate_workload_priced_gpu_seconds_total', RANGE)})"
                f" or 0 * count({of('tidegate_observed')})), 0) / 3600"
            ),
            [Step(0.05, AMBER)],
            decimals=1,
        ),
    ]


def money_lists() -> list[Panel]:
    """Spent and saved by workload, namespace and team."""
    return [_by_workload(), _by_namespace(), _by_team()]


def _by_workload() -> Panel:
    tokens = (
        Query(per_million(spent(), "tidegate_workload_priced_gpu_seconds_total", kind), title)
        for kind, title in (("prompt", "1M input tokens"), ("generation", "1M output tokens"))
    )
    return rows(
        "Money by workload",
        "Spent, the idle part of it, and saved against always on at the maximum and at the peak of the day; and the "
        "whole cost divided by the input, and by the output tokens: do not add the two. An empty cell is unknown: no "
        f"price, or no tokens. {SETTING}",
        [
            Query(spent(), "spent"),
            Query(spent(states="idle_warm"), "idle"),
            Query(saved("maximum"), "saved: maximum"),
            Query(saved("peak"), "saved: peak"),
            *(query._replace(expr=f"sum by (namespace, workload) ({query.expr})") for query in tokens),
        ],
        [
            *_columns(Column("namespace"), Column("workload", link=("Its board", TO_WORKLOAD))),
            Column("1M input tokens", decimals=2),
            Column("1M output tokens", decimals=2),
        ],
        width=24,
        sort="spent",
    )


def _by_namespace() -> Panel:
    return rows(
        "Money by namespace",
        "Spent and saved as above, by the namespace of the workload. A high idle part: ask its owners for a shorter "
        "keep-warm time.",
        _by("namespace"),
        _columns(Column("namespace")),
        sort="spent",
    )


def _by_team() -> Panel:
    return rows(
        "Money by team",
        "Spent and saved as above, by the team that the label `prices.team_label` of the scale target names. No rows: "
        "set `prices.team_label`.",
        _by("team", f" * on (namespace, workload) group_left (team) {of('tidegate_workload_team', 'team')}"),
        _columns(Column("team")),
        sort="spent",
    )


def workload_money() -> list[Panel]:
    """For the selected workload."""
    return [
        stat_of(
            "Price of a GPU-hour",
            f"Present price of one of its GPUs: of the workload, of the model, or the public one. {SETTING}",
            "short",
            Query(of_one("tidegate_workload_gpu_hour")),
            decimals=2,
            absence=WITHOUT_PRICE,
        ),
        *_amounts(ONE, WITHOUT_PRICE, over_all=False),
        stat_of(
            "Energy",
            "Energy of its GPUs while the power of all of them was known. Not measured: the exporter shows no power, "
            "or the GPUs are MIG slices.",
            "kwatth",
            Query(f"{increase_of('tidegate_workload_joules_total', RANGE, where=ONE)} / 3.6e6"),
            decimals=2,
            absence=Absence("not measured", of_one("tidegate_observed")),
        ),
        graph(
            "Cost per hour, by state",
            "Cost of its GPUs per hour, by what they do: its area is money. Amber is the cost of keep-warm; `tidegate "
            "explain` shows what one more hour of it would cost and save.",
            "short",
            [
                Query(
                    "3600 * "
                    + rate_of("tidegate_workload_cost_total", "$__rate_interval", "state", where=ONE, state=HELD),
                    "{{state}}",
                )
            ],
            stacked=True,
            colours=STATES,
            decimals=2,
        ),
        rows(
            "A million tokens",
            "The whole cost and energy, divided by the input (`prompt`) and by the output (`generation`) tokens: do "
            "not add the two. An empty cell or no row is unknown: no tokens, or GPUs without a known price or power.",
            [
                Query(f"sum by (kind) ({per_million(total, covered, '~.+', ONE)})", title)
                for total, covered, title in (
                    (spent(ONE), "tidegate_workload_priced_gpu_seconds_total", "cost"),
                    (
                        increase_of("tidegate_workload_joules_total", RANGE, where=ONE),
                        "tidegate_workload_powered_gpu_seconds_total",
                        "energy",
                    ),
                )
            ],
            [Column("kind"), Column("cost", decimals=2), Column("energy", unit="joule")],
        ),
    ]
