"""Runs every query of every board in a real Prometheus that scrapes a running `tidegate demo`. Queries about metrics
that the demo lacks, listed here, run in one that scrapes the target of rare_metrics.py.
"""

import re

import pytest

from tests.dashboards.built import BOARDS, queries_of

# Labels and metrics that the demo lacks, and why.
APART = {
    r"tidegate_node_gpus_allocatable": "it has no Kubernetes",
    r"tidegate_kubernetes_": "nor its resources",
    r"tidegate_object_errors": "nor objects that are wrong",
    r"tidegate_metrics_api_registered": "nor API groups",
    r'^(?![\s\S]*"serving")[\s\S]*reason="no_wake_source"': "its gateway wakes it",
    r"tidegate_(hpa_|controller_outcome)": "nor an HPA, but a stand-in for one",
    r"tidegate_workload_brake": "no brake is set",
    r"tidegate_workload_schedule": "and it has no schedule",
    r"tidegate_keep_warm_saved": "its keep-warm time is a constant",
    r"tidegate_prewarm": "and nothing is foreseen",
    r"tidegate_workload_gpu_engine_ceiling": "its GPUs are whole",
    r"tidegate_gpu_engine_ceiling": "its GPUs are whole",
    r'mig_instance!=""': "its GPUs are whole",
    r"tidegate_gpu_(sharers|process_)": "and none is shared",
    r"tidegate_gpu_(last_xid|lost)": "or breaks",
    r"tidegate_gpu_share_replicas": "and they are not divided",
    r"tidegate_(leader|peer_)": "it runs one replica",
    r"tidegate_(cold|zero)_start": "and sees no pods, of which one could see how long they take to start",
    r"tidegate_checkpoint_": "which keeps no checkpoints",
    r"tidegate_events_dropped": "and no Events are written on it",
    r"tidegate_node_(cost|gpu_seconds)": "it has no nodes",
    r"tidegate_workload_team": "nor teams",
    r"tidegate_shadow_": "and nothing is only observed",
    r"time_to_first_token|inter_token_latency": "and Prometheus does not scrape its engines",
}

# Metrics that the demo has or lacks depending on the machine's speed: queried from the target.
SELDOM = (
    r'^(?![\s\S]*"serving")[\s\S]*reason="held"', r'reason=~"held\|incomplete\|unknown"',
    r"tidegate_held_seconds", r"ALERTS", r'^(?![\s\S]*"serving")[\s\S]*reason="capped"',
    r"avg_over_time\(tidegate_gpu_engine_active", r"tidegate_stale_targets\S* > 0", r"tidegate_scrape_failures",
    r"tidegate_incomplete_series\S* > 0",
    r"tidegate_scrape_up\S* == 0", r"tidegate_streams_ended",
)  # fmt: skip

# Values of Grafana's variables, for the demo and for the target.
VARIABLES = {
    "demo": {"namespace": "demo", "workload": "chat"},
    "pages": {"namespace": "ai", "workload": "chat"},
}
# On the target each workload has a special feature.
WORKLOADS = {"tidegate_held_seconds": "held", "tidegate_shadow_": "seen"}


def measured(expr):
    """The query without the reason for which it may have no value: that would always be data."""
    return expr.split("\nor NaN * ")[0]


EXPRESSIONS = [measured(expr) for _, expr in queries_of(BOARDS)]


def queries():
    return [pytest.param(measured(expr), id=name) for name, expr in queries_of(BOARDS)]


def variables():
    return [
        pytest.param(each["query"], id=f"{uid}-{each['name']}")
        for uid, board in BOARDS.items()
        for each in board["templating"]["list"]
        if each["type"] == "query"
    ]


def apart(expr):
    return [pattern for pattern in (*APART, *SELDOM) if re.search(pattern, expr)]


def filled_in(expr, where, workload=None):
    """The query as Grafana sends it, with All for variables with several values. workload: None: one that has data."""
    expr = re.sub(r'=~"\$\w+"', '=~".*"', expr)
    expr = expr.replace("$__rate_interval", "5s").replace("$__range", "5m").replace("$__interval", "1s")
    matching = [name for metric, name in WORKLOADS.items() if metric in expr and where == "pages"]
    variables = VARIABLES[where] | ({"workload": workload or matching[0]} if workload or matching else {})
    for name, value in variables.items():
        expr = expr.replace(f"${name}", value)
    assert "$" not in expr
    return expr


@pytest.mark.parametrize("expr", queries())
def test_query_returns_data(expr, watched):
    where = "pages" if apart(expr) else "demo"
    query = filled_in(expr, where)
    found = watched[where].over_time(query)
    assert found != [], query
    at = found[0]["values"][-1][0]
    assert watched[where].instant(query, at) != [], query


@pytest.mark.parametrize("query", variables())
def test_variable_has_values(query, watched):
    selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", query).groups()
    values = watched["demo"].ask(f"label/{label}/values", **{"match[]": filled_in(selector, "demo")})
    assert values != []
    # Labels of the scraped pod never replace labels of the series.
    assert label != "namespace" or values == ["demo"]


@pytest.mark.parametrize("pattern", list(APART))
def test_demo_lacks_the_listed_metrics(pattern, watched):
    having = [expr for expr in EXPRESSIONS if re.search(pattern, expr)]
    assert having, "no query uses it: remove it from the list"
    # A query with a fallback to "none" returns data everywhere.
    alone = [expr for expr in having if apart(expr) == [pattern] and " or 0 * " not in expr]
    assert [expr for expr in alone if watched["demo"].over_time(filled_in(expr, "demo"))] == []


def test_every_metric_of_a_query_is_exported(watched):
    exported = {name for each in watched.values() for name in each.ask("label/__name__/values")}
    queried = {name for expr in EXPRESSIONS for name in re.findall(r"\b(?:tidegate|process)_\w+", expr)}
    wildcards = {name for name in queried if name.endswith("_")}  # of `__name__=~`
    assert queried - exported - wildcards == set()
