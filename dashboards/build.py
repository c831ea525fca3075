"""What is made of the files here: the boards' JSON, and copies of boards and alerts in the chart and in the kustomize
component `monitoring`, each of which can only read files of its own folder.

Worked example: after a change of alerts.yaml or of a board, `python -m dashboards.build` (or `make generate`) writes
all of them; tests compare them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from .boards import gpu, itself, overview, workload

HERE = Path(__file__).parent
DEPLOY = HERE.parent / "deploy"
CHART, COMPONENT = DEPLOY / "chart/files", DEPLOY / "kustomize/components/monitoring"
MADE = "# Made of dashboards/alerts.yaml by dashboards/build.py: change it there.\n"
COMPONENT_SAYS = """\
# Made by dashboards/build.py: change it there. prometheus-operator finds the pods and scrapes them, and has Prometheus
# watch for what docs/how-to/runbooks.md is about; Grafana's sidecar finds the boards. Add the labels that yours
# select by.
"""
BOARDS = (overview, workload, gpu, itself)


def plain(alerts: str) -> str:
    """For the chart."""
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


def component(uids: Sequence[str]) -> str:
    """The kustomize component: what prometheus-operator and Grafana's sidecar find. A kustomization reads no globs."""
    generated = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "resources": ["podmonitor.yaml", "prometheusrule.yaml"],
        "configMapGenerator": [
            {
                "name": uid.replace("tidegate-", "tidegate-board-"),
                "namespace": "tidegate",
                "files": [f"dashboards/{uid}.json"],
                "options": {"disableNameSuffixHash": True, "labels": {"grafana_dashboard": "1"}},
            }
            for uid in uids
        ],
    }
    return COMPONENT_SAYS + yaml.safe_dump(generated, sort_keys=False, width=120)


def boards() -> dict[str, dict[str, Any]]:
    """Each board as Grafana reads it, by its uid."""
    made = [board.made() for board in BOARDS]
    return {str(board.uid): json.loads(JSONEncoder(sort_keys=True).encode(board)) for board in made}


def files() -> dict[Path, str]:
    """Everything that is built: path and text."""
    alerts = (HERE / "alerts.yaml").read_text(encoding="utf-8")
    found = {
        CHART / "alerts.yaml": plain(alerts),
        COMPONENT / "prometheusrule.yaml": prometheus_rule(alerts),
    }
    found[COMPONENT / "kustomization.yaml"] = component(sorted(boards()))
    for uid, board in boards().items():
        text = json.dumps(board, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        for folder in (HERE / "grafana", CHART / "dashboards", COMPONENT / "dashboards"):
            found[folder / f"{uid}.json"] = text
    return found


def main() -> None:
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
