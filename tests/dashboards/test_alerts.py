"""The alerts: Prometheus' own tool tests each of them, each has a runbook, and all copies are equal."""

import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "dashboards/alerts.yaml"
DOCS = "https://github.com/tidegate/tidegate/blob/main/docs"
MINE = {"docs": "https://git.example.com/tidegate/docs", "grafana": "https://grafana.example.com/mine"}
TESTS = Path(__file__).with_name("alerts.test.yaml")
RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
NAMES = [rule["alert"] for rule in RULES]


def test_every_alert_fires_exactly_when_it_should(debian_tool):
    promtool = debian_tool("promtool", "prometheus")
    done = subprocess.run([promtool, "test", "rules", str(TESTS)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_firing_and_a_silent_test():
    cases = yaml.safe_load(TESTS.read_text())["tests"]
    tried = [case for test in cases for case in test["alert_rule_test"]]
    [good] = [test for test in cases if test["name"] == "a time in which all is well"]

    assert {case["alertname"] for case in tried if case["exp_alerts"]} == set(NAMES)
    assert [case["alertname"] for case in good["alert_rule_test"] if not case["exp_alerts"]] == NAMES
    # That no alert fires proves something only if its metrics are present.
    given = {each["series"].partition("{")[0] for each in good["input_series"]}
    assert {word for rule in RULES for word in re.findall(r"\btidegate_\w+", rule["expr"])} - given == set()


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_every_alert_has_a_runbook_that_begins_with_the_state_meanwhile(rule):
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    file = ROOT / "docs" / page.removeprefix(f"{DOCS}/")
    found = re.search(rf"^## {rule['alert']}\n\n\*\*Meanwhile:\*\* ", file.read_text(), re.MULTILINE)

    assert urlsplit(page).netloc
    assert anchor == rule["alert"].lower()
    assert found


def test_every_metric_of_the_alerts_exists():
    metrics = set(re.findall(r"\btidegate_\w+", " ".join(rule["expr"] for rule in RULES)))
    code = "\n".join(path.read_text() for folder in ("exporter", "scaler") for path in (ROOT / folder).rglob("*.py"))

    short = {word.removeprefix("tidegate_").removeprefix("gpu_") for word in metrics}
    defined = set(re.findall(r'"(?:tidegate_)?(\w+)"', code))  # a counter of the accounts without its suffix
    assert {word for word in short if not {word, word.removesuffix("_total")} & defined} == set()


def test_rule_of_the_chart_has_tidegates_alerts_and_the_users_own():
    from tests.deploy.shared import CHART, module, objects  # noqa: PLC0415 - Helm's engine is not needed by the others

    custom = {"name": "mine", "rules": [{"alert": "Mine", "expr": "vector(1)"}]}
    with module("helm_python", "helm-python-sdk").Chart.load(CHART) as chart:
        texts = chart.render(
            {"prometheusRule": {"enabled": True, "groups": [custom]}}, name="tidegate", namespace="ops"
        )
    [rule] = [
        each
        for file, text in texts.items()
        if file.endswith("rule.yaml")
        for each in objects(text)
        if each["kind"] == "PrometheusRule"
    ]

    assert rule["spec"]["groups"] == [*yaml.safe_load(ALERTS.read_text())["groups"], custom]


def test_chart_and_build_link_alerts_to_the_given_grafana_and_docs(grafana_build):
    from tests.deploy.shared import CHART, module, objects  # noqa: PLC0415 - Helm's engine is not needed by the others

    with module("helm_python", "helm-python-sdk").Chart.load(CHART) as chart:
        values = {
            "prometheusRule": {"enabled": True},
            "links": {"docs": MINE["docs"]},
            "config": {"links": {"grafana": MINE["grafana"]}},
        }
        texts = chart.render(values, name="tidegate", namespace="ops")
    [text] = [text for file, text in texts.items() if file.endswith("prometheusrule.yaml")]
    [rule] = objects(text)
    groups = rule["spec"]["groups"]
    built = yaml.safe_load(grafana_build.linked_alerts(ALERTS.read_text(), **MINE))["groups"]
    annotations = [each["annotations"] for group in groups for each in group["rules"]]

    assert groups == built
    assert all(each["runbook_url"].startswith(f"{MINE['docs']}/how-to/runbooks.md#") for each in annotations)
    assert all(each["dashboard_url"].startswith(f"{MINE['grafana']}/d/") for each in annotations)
    boards = {file.stem for file in (ROOT / "dashboards/grafana").glob("*.json")}
    assert {word for each in annotations for word in re.findall(r"tidegate-\w+", each["dashboard_url"])} == boards


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("deploy/chart/files/alerts.yaml", ()),
        ("deploy/kustomize/components/monitoring/prometheusrule.yaml", ("spec",)),
    ],
)
def test_deployed_alerts_are_the_same(file, path):
    copy = yaml.safe_load((ROOT / file).read_text())
    for key in path:
        copy = copy[key]

    assert copy["groups"] == yaml.safe_load(ALERTS.read_text())["groups"]
