"""dashboards/alerts.yaml -> the same alerts in the chart and in the kustomize component `monitoring`.

Worked example: after a change of alerts.yaml, `python dashboards/build.py` (or `make generate`) writes both copies; a
test compares them.
"""  # noqa: INP001 - a script, beside what it is made of

from __future__ import annotations

from pathlib import Path

import yaml

HERE = Path(__file__).parent
DEPLOY = HERE.parent / "deploy"
MADE = "# Made of dashboards/alerts.yaml by dashboards/build.py: change it there.\n"


def plain(alerts: str) -> str:
    """For the chart, which can only read files of its own folder."""
    return MADE + alerts


def prometheus_rule(alerts: str) -> str:
    """A PrometheusRule of prometheus-operator."""
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "tidegate", "namespace": "tidegate"},
        "spec": yaml.safe_load(alerts),
    }
    return MADE + yaml.safe_dump(rule, sort_keys=False, width=120)


def main() -> None:
    alerts = (HERE / "alerts.yaml").read_text()
    files = {
        DEPLOY / "chart/files/alerts.yaml": plain(alerts),
        DEPLOY / "kustomize/components/monitoring/prometheusrule.yaml": prometheus_rule(alerts),
    }
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
