"""Tidegate through Prometheus: Prometheus' own engine (promtool) evaluates the queries over the series that it stores
for Tidegate's metrics.
"""

import subprocess
from dataclasses import replace

import pytest
import yaml
from prometheus_client import CollectorRegistry

from exporter.model import WorkloadKey
from scaler.api.http.collectors import BoardCollector
from scaler.engine.publisher import Publisher
from scaler.model import Decision, Evidence, Reason
from tests.deploy.shared import DEPLOY, objects

ADAPTER = yaml.safe_load((DEPLOY / "prometheus" / "prometheus-adapter.yaml").read_text(encoding="utf-8"))
(KEDA,) = objects((DEPLOY / "prometheus" / "keda.yaml").read_text(encoding="utf-8"))
(TRIGGER,) = KEDA["spec"]["triggers"]
CHAT, JOBS = WorkloadKey("ai", "chat"), WorkloadKey("ai", "jobs")

# The decisions for ai/chat, minute by minute; ai/jobs sleeps throughout.
SERVING = Decision(CHAT, 3, active=True, reason=Reason.SERVING, decided_at=0.0, evidence=Evidence())
HELD = Decision(CHAT, 3, active=True, reason=Reason.SERVING, decided_at=0.0, held_since=60.0, evidence=Evidence())
UNKNOWN = Decision(CHAT, None, active=True, reason=Reason.UNKNOWN, decided_at=0.0, evidence=Evidence())
ASLEEP = Decision(CHAT, 0, active=False, reason=Reason.ASLEEP, decided_at=0.0, evidence=Evidence())
OBSERVED = replace(SERVING, observed=True)
# At 10 replicas an HPA drops the step to 11 as too small: 12 is published.
OUTWARD = replace(SERVING, replicas=11, published=12)
DECISIONS = (SERVING, HELD, UNKNOWN, SERVING, ASLEEP, OBSERVED, OUTWARD)
JOBS_ASLEEP = Decision(JOBS, 0, active=False, reason=Reason.ASLEEP, decided_at=0.0, evidence=Evidence())


def scraped(decision):
    """Each sample of /metrics about workloads, by its series in Prometheus' notation."""
    publisher, registry = Publisher([CHAT, JOBS]), CollectorRegistry()
    publisher.publish([decision, JOBS_ASLEEP], at=0.0)
    registry.register(BoardCollector(lambda: publisher.board, lambda: 0.0))
    return {
        name + "{" + ",".join(f'{key}="{value}"' for key, value in sorted(labels.items())) + "}": sample.value
        for family in registry.collect() for sample in family.samples
        for name, labels in [(sample.name, sample.labels)] if labels
    }  # fmt: skip


def kept():
    """The series as Prometheus stores them: a sample that disappears ends its series."""
    scrapes = [scraped(decision) for decision in DECISIONS]
    names = sorted({name for scrape in scrapes for name in scrape})
    return [
        {"series": name, "values": " ".join(str(scrape.get(name, "stale")) for scrape in scrapes)} for name in names
    ]


@pytest.fixture
def promtool(tmp_path, debian_tool):
    """`promtool(query, minute, samples)`: the error of Prometheus' engine for that result; "" if it is correct."""
    tool = debian_tool("promtool", "prometheus")

    def ask(query, minute, samples):
        expected = [{"labels": labels, "value": value} for labels, value in samples.items()]
        case = {"expr": query, "eval_time": f"{minute}m", "exp_samples": expected}
        test = {"interval": "1m", "input_series": kept(), "promql_expr_test": [case]}
        file = tmp_path / "test.yaml"
        file.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]}), encoding="utf-8")
        done = subprocess.run(
            [tool, "test", "rules", str(file)], capture_output=True, text=True, check=False, timeout=60
        )
        return "" if done.returncode == 0 else done.stdout + done.stderr

    return ask


def adapters(rule, **fields):
    """The query of a prometheus-adapter rule: a Go template with other brackets."""
    query = rule["metricsQuery"]
    for name, value in {"Series": "tidegate_published_replicas", **fields}.items():
        query = query.replace(f"<<.{name}>>", value)
    assert "<<" not in query
    return query


def queries():
    """Each query with the labels of its result."""
    (external,), (custom,) = ADAPTER["externalRules"], ADAPTER["rules"]
    matchers = 'namespace="ai",workload="chat"'
    by_object = adapters(custom, GroupBy="workload", LabelMatchers='namespace="ai",workload=~"chat"')
    return [
        pytest.param(TRIGGER["metadata"]["query"], "{}", id="keda"),
        pytest.param(adapters(external, LabelMatchers=matchers), '{workload="chat"}', id="external"),
        pytest.param(by_object, '{workload="chat"}', id="custom"),
    ]


@pytest.mark.parametrize(("query", "labels"), queries())
def test_query_returns_the_decision_also_while_it_is_held(promtool, query, labels):
    for minute, replicas in ((0, 3), (1, 3), (3, 3), (4, 0)):
        assert promtool(query, minute, {labels: replicas}) == ""


@pytest.mark.parametrize(("query", "labels"), queries())
def test_unknown_decision_returns_no_sample_and_never_a_zero(promtool, query, labels):
    assert promtool(query, 2, {}) == ""
    # This is the result of a query that fills in zeros.
    assert promtool(f"({query}) or vector(0)", 2, {}) != ""


@pytest.mark.parametrize(("query", "labels"), queries())
def test_query_returns_the_published_number_beyond_the_hpas_tolerance(promtool, query, labels):
    assert promtool(query, 6, {labels: 12}) == ""


@pytest.mark.parametrize(("query", "labels"), queries())
def test_observed_workload_returns_no_sample(promtool, query, labels):
    assert 'tidegate_published_replicas{namespace="ai",workload="chat"}' in scraped(OBSERVED)
    assert promtool(query, 5, {}) == ""


@pytest.mark.parametrize("rule", ADAPTER["externalRules"] + ADAPTER["rules"], ids=["external", "custom"])
def test_adapter_discovers_its_series(promtool, rule):
    series = {
        f'tidegate_published_replicas{{namespace="ai",workload="{name}"}}': n for name, n in (("chat", 3), ("jobs", 0))
    }
    assert promtool(rule["seriesQuery"], 0, series) == ""


@pytest.mark.parametrize("rule", ADAPTER["externalRules"] + ADAPTER["rules"], ids=["external", "custom"])
def test_adapter_rule_uses_exported_labels(rule):
    assert set(rule) == {"seriesQuery", "resources", "name", "metricsQuery"}
    assert set(rule["resources"]) == {"overrides"}
    assert set(rule["resources"]["overrides"]) <= {"namespace", "workload"}
    assert rule["name"] == {"matches": "^tidegate_published_replicas$", "as": "tidegate-replicas"}
    assert "vector(" not in rule["metricsQuery"]


def test_keda_does_not_read_an_empty_result_as_zero(problems_of):
    assert problems_of(KEDA) == []
    assert TRIGGER["type"] == "prometheus"
    assert TRIGGER["metadata"]["ignoreNullValues"] == "false"
    assert (TRIGGER["metadata"]["threshold"], TRIGGER["metadata"]["activationThreshold"]) == ("1", "0")
    assert "vector(" not in TRIGGER["metadata"]["query"]
